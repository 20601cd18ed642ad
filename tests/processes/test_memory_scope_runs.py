"""Memories of agent types: three scopes in two projects, visible and writable only for their owners."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from coterie.agents.events.agent_events import PermissionDecided, ToolEnded
from coterie.memory.store.memory_store import MemoryStore
from coterie.orchestrator.events.session_reader import read_session
from coterie.session_directory import SessionDirectory, project_slug
from tests.processes.project_shell import ProjectShell
from tests.processes.session_record import conversation

pytestmark = pytest.mark.slow

GIT = shutil.which("git") or "git"
KINDS = {"sage": "user", "clerk": "project", "keeper": "local"}


@pytest.fixture
def home(home: Path, runtime: Path) -> Path:
    """Memories of a user with three agent types, one for each scope."""
    del runtime
    (home / "agents").mkdir(parents=True)
    for kind, scope in KINDS.items():
        text = f"---\nname: {kind}\ndescription: Keeps things.\nmemory: {scope}\n---\nKeep things.\n"
        (home / "agents" / f"{kind}.md").write_text(text)
    return home


def _project(tmp_path: Path, name: str) -> ProjectShell:
    directory = tmp_path / name
    directory.mkdir()
    subprocess.run([GIT, "init", "-q", str(directory)], check=True)
    return ProjectShell(directory)


def _memories(home: Path, place: ProjectShell) -> dict[str, Path]:
    """Return all memory directories that an agent in *place* could know, by owner."""
    ours = place.project / ".coterie"
    return {
        "sage": home / "agent-memory/sage",
        "clerk": ours / "agent-memory/clerk",
        "keeper": ours / "agent-memory-local/keeper",
        "main": home / "projects" / project_slug(place.project) / "memory",
    }


def _write(path: Path, content: str) -> str:
    return f'{{Write: {{file_path: "{path}", content: "{content}"}}}}'


def _script(home: Path, place: ProjectShell) -> str:
    """Return a script in which each agent type writes its own memory, and tries to write the others."""
    directories = _memories(home, place)
    name = place.project.name
    starts = [f"{{Agent: {{description: d, prompt: Keep., subagent_type: {kind}, name: {kind}}}}}" for kind in KINDS]
    lines = ["main:", f"  - tools: [{', '.join(starts)}]", "  - text: Done."]
    for kind in KINDS:
        own = _write(directories[kind] / f"{name}.md", f"{kind} was in {name}")
        others = [path / "stolen.md" for whose, path in directories.items() if whose != kind]
        tried = [_write(path, "no") for path in (*others, directories[kind] / "../stolen.md", home / "stolen.md")]
        lines += [f"{kind}:", f"  - tools: [{', '.join([own, *tried])}]", "  - text: Kept."]
    return "\n".join(lines)


def _run(place: ProjectShell, script: str) -> SessionDirectory:
    before = set(place.project.parent.glob("home/projects/*/sessions/*"))
    done = place.coterie("run", "Go.", *place.model(script), "--permission-mode", "acceptEdits", "-p")
    assert done.returncode == 0, done.stderr
    [new] = set(place.project.parent.glob("home/projects/*/sessions/*")) - before
    return SessionDirectory.find(new.name)


def _first_context(session: SessionDirectory, kind: str) -> str:
    """Return the system prompt and the first message of an agent."""
    seen = conversation(session, kind)
    system = (segment.data for segment in seen.segments if segment.section == "system")
    return b"".join([*system, *seen.messages[0].blocks]).decode()


def test_each_agent_type_sees_and_writes_only_its_own_memory(tmp_path: Path, home: Path) -> None:
    one, two = _project(tmp_path, "one"), _project(tmp_path, "two")
    for place in (one, two):
        session = _run(place, _script(home, place))
        events = [(each.agent, each.event) for each in read_session(session.directory)]
        for kind in KINDS:
            ended = [event for agent, event in events if agent == kind and isinstance(event, ToolEnded)]
            assert [event.is_error for event in ended] == [False, *[True] * 5]
            denied = [event for agent, event in events if agent == kind and isinstance(event, PermissionDecided)]
            assert all(event.verdict != "allowed" for event in denied)
    assert list(tmp_path.rglob("stolen.md")) == []

    both = {"one.md", "two.md"}
    expected = {"sage": both, "clerk": {"one.md"}, "keeper": {"one.md"}}
    starts = _script(home, one).partition("\nsage:")[0]
    session = _run(one, "\n".join([starts, *(f"{kind}: [Kept.]" for kind in KINDS)]))
    for kind, names in expected.items():
        directories = _memories(home, one)
        assert set(MemoryStore.at(directories[kind]).paths()) == names
        told = _first_context(session, kind)
        assert {name for name in both if f"({name})" in told} == names
        assert not any(str(path) in told for whose, path in directories.items() if whose != kind)
    assert [MemoryStore.at(_memories(home, two)[kind]).paths() for kind in ("clerk", "keeper")] == [["two.md"]] * 2

    tracked = [GIT, "-C", str(one.project), "status", "--porcelain", "--untracked-files=all"]
    status = subprocess.run(tracked, capture_output=True, text=True, check=True, env=os.environ).stdout
    assert ".coterie/agent-memory/clerk/one.md" in status
    assert "agent-memory-local" not in status, "what is the user's own stays out of git"
    assert ".history" not in status

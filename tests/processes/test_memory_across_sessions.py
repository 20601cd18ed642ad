"""Facts of one session are known in the next, and `coterie memory extract` saves those of an ended one."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import CacheBroke, Dreamed, LayerFailed, MemoryExtracted, Recalled
from coterie.memory.store.memory_store import MemoryStore
from coterie.orchestrator.gateway.ledger import LEDGER, LedgerEntry, read_ledger
from coterie.orchestrator.session.overview import read_overview
from coterie.session_directory import SessionDirectory, project_slug
from tests.processes import session_record
from tests.processes.project_shell import ProjectShell
from tests.processes.session_record import conversation, loaded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Reply = dict[str, Any]

FORKS = {"left": ["Nothing to the left."], "right": ["Nothing to the right."]}
"""Replies of forks of the lead."""

OLD, NEW = "The staging server listens on port 8080.", "The staging server listens on port 9090."
HOST = "The staging server runs on the machine called heron."


def memory(name: str, description: str, sentence: str) -> str:
    return f"---\nname: {name}\ndescription: {description}\ntype: project\n---\n{sentence}\n"


PORT_MEMORY = memory("Staging port", "on which port the staging server listens", OLD)
HOST_MEMORY = memory("Staging host", "on which machine the staging server runs", HOST)
STAGING_MEMORY = memory("Staging", "port and machine of the staging server", f"{NEW}\n{HOST}")


def calls(*tools: tuple[str, dict[str, str]]) -> Reply:
    return {"tools": [{name: arguments} for name, arguments in tools]}


NAMES = ("staging-port.md", "staging-host.md")
LOOKING = calls(
    *(("Read", {"file_path": f"{{{{match.1}}}}/{name}"}) for name in NAMES),
    ("Glob", {"path": "{{match.1}}", "pattern": "*.md"}),
)
WRITING = calls(
    ("Write", {"file_path": "{{match.1}}/staging.md", "content": STAGING_MEMORY}),
    *(("Write", {"file_path": f"{{{{match.1}}}}/{name}", "content": ""}) for name in NAMES),
)
MERGING = (
    {**LOOKING, "when": {"turn": 1, "last_user_text": "/`([^`]*)` contains a copy/"}},
    {**WRITING, "when": {"turn": 2, "last_tool_result": r"/(\S*)/staging-host\.md/"}},
    {"text": "I made one memory of two.", "when": {"turn": 3}},
)
"""A dream that makes one memory of two."""


@attrs.frozen
class EndedSession:
    session: SessionDirectory
    printed: str
    """Content of standard error."""

    def events(self, kind: type[Event]) -> list[Any]:
        return session_record.events(self.session, kind)

    @property
    def ledger(self) -> Sequence[LedgerEntry]:
        """Return its requests in the order of their replies."""
        return read_ledger(self.session.directory / LEDGER).lines

    def check(self) -> None:
        """Check that nothing failed, and every request but the first read the whole cached prefix."""
        assert self.events(LayerFailed) == []
        assert [line.missed for line in self.ledger] == [0] * len(self.ledger)
        assert all(line.usage.read > 0 for line in self.ledger[1:])
        assert self.events(CacheBroke) == []


class Project(ProjectShell):
    """A project whose agents have memories."""

    @property
    def store(self) -> MemoryStore:
        return MemoryStore.at(self.project.parent / "home/projects" / project_slug(self.project) / "memory")

    def path(self, name: str) -> str:
        """Return the history of a memory."""
        return str(self.store.directory / name)

    def run_session(
        self, words: str, *turns: Reply, extraction: Sequence[Reply] = (), dream: Sequence[Reply] = ()
    ) -> EndedSession:
        before = set(self._sessions())
        replies = [
            *turns,
            *({**reply, "purpose": "extraction"} for reply in (*extraction, {"text": "nothing", "times": "always"})),
            *({**reply, "purpose": "dream"} for reply in dream),
        ]
        options = ("--permission-mode", "acceptEdits")
        done = self.coterie("run", words, *self.model(json.dumps({"main": replies, **FORKS})), *options)
        assert done.returncode == 0, done.stderr
        [new] = set(self._sessions()) - before
        return EndedSession(SessionDirectory.find(new.name), done.stderr)

    def recalled(self, query: str) -> list[str]:
        """Return the texts that the command finds, best first."""
        done = self.coterie("memory", "recall", query, "--local", "--json")
        assert done.returncode == 0, done.stderr
        found = [memory["path"] for memory in json.loads(done.stdout)["memories"]]
        return [(self.store.directory / path).read_text() for path in found]

    def _sessions(self) -> list[Path]:
        return list(self.project.parent.glob("home/projects/*/sessions/*"))


@pytest.fixture
def place(project: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project that extracts memories and dreams although the model is scripted."""
    monkeypatch.setenv("COTERIE_LAYERS_EXTRACTION_ENABLED", "true")
    monkeypatch.setenv("COTERIE_LAYERS_DREAMING_ENABLED", "true")
    monkeypatch.setenv("COTERIE_LAYERS_DREAMING_SESSIONS", "3")
    return Project(project)


def test_a_fact_is_extracted_recalled_corrected_consolidated_and_undone(place: Project) -> None:
    saving = calls(("Write", {"file_path": place.path("staging-port.md"), "content": PORT_MEMORY}))
    first = place.run_session("Know that staging is on port 8080.", {"text": "Noted."}, extraction=[saving])
    [extracted] = first.events(MemoryExtracted)
    assert extracted.saved == ["staging-port.md"]
    assert "saved memories: staging-port.md" in first.printed
    [change] = place.store.changes()
    assert (change.author.by, change.author.session) == ("extraction", first.session.id)
    first.check()

    forks = calls(
        *(("Agent", {"subagent_type": "fork", "name": name, "description": "d", "prompt": "Look."}) for name in FORKS)
    )
    reading = calls(("Read", {"file_path": place.path("staging-port.md")}))
    correcting = calls(
        ("Edit", {"file_path": place.path("staging-port.md"), "old_string": "8080", "new_string": "9090"}),
        ("Write", {"file_path": place.path("staging-host.md"), "content": HOST_MEMORY}),
    )
    task = "Which port is the staging server on? It has moved to port 9090, on heron."
    second = place.run_session(task, forks, {"text": "9090.", "times": "always"}, extraction=[reading, correcting])
    [recalled] = second.events(Recalled)
    assert recalled.chosen == [place.path("staging-port.md")]
    first_message = b"".join(conversation(second.session).messages[0].blocks).decode()
    assert "port 8080" in first_message, "with the task, before the first call"
    assert "(staging-port.md)" in first_message, "as does the index"
    second.check()
    assert {line.agent for line in second.ledger} == {"main", *FORKS}
    assert second.events(Dreamed) == [], "two sessions are not enough"
    assert [NEW in text for text in place.recalled("staging port")] == [True, False]
    assert not any(OLD in text for text in place.recalled("staging port 8080"))
    assert [OLD.encode() in (each.before or b"") for each in place.store.changes()] == [False, True, False]
    before = {path: place.store.read(path) for path in place.store.paths()}

    third = place.run_session("How are you?", {"text": "Fine."}, dream=MERGING)
    dreamed = third.events(Dreamed)
    assert [event.state for event in dreamed] == ["starting", "updating", "completed"]
    assert (dreamed[-1].waiting, dreamed[-1].dropped) == (0, 0)
    assert "dream completed: " in third.printed
    third.check()
    assert place.store.paths() == ["staging.md"]
    assert [(NEW in text, HOST in text) for text in place.recalled("staging port")] == [(True, True)]

    undone = place.coterie("memory", "undo", f"dream-{dreamed[-1].change}")
    assert undone.returncode == 0, undone.stderr
    assert {path: place.store.read(path) for path in place.store.paths()} == before
    assert [f"({name})" in place.store.index() for name in ("staging.md", *NAMES)] == [False, True, True]


TALK = """
main:
  - text: I will remember that.
"""


def saving(talk: Project, name: str = "testing.md", times: str = "1") -> str:
    """Return a script in which the helper saves one memory."""
    content = "---\\nname: testing\\ndescription: how tests are made\\ntype: feedback\\n---\\nUse a real database.\\n"
    call = f'{{Write: {{file_path: "{talk.path(name)}", content: "{content}"}}}}'
    return f"{TALK}default:\n  - {{purpose: extraction, times: {times}, tools: [{call}]}}\n"


@pytest.fixture
def talk(project: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An empty project, whose sessions extract nothing automatically."""
    monkeypatch.setenv("COTERIE_LAYERS_EXTRACTION_ENABLED", "false")
    monkeypatch.setenv("COTERIE_LAYERS_DREAMING_ENABLED", "false")
    return Project(project)


def test_extraction_from_an_ended_session_runs_no_turn_and_lists_its_memories(
    talk: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the model cannot be reached or its memories cannot be stored, one line is printed."""
    assert talk.coterie("run", "Test against a real database.", *talk.model(TALK)).returncode == 0
    session, before = talk.session, loaded(talk.session)
    failed = talk.coterie("memory", "extract", session.id, *talk.model(TALK))
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"Error: no memories were extracted from session {session.id}: ")
    refused = talk.coterie("memory", "extract", session.id, *talk.model(saving(talk, "../out.md", "always")))
    assert refused.returncode == 1
    assert "a memory could not be written" in refused.stderr
    assert talk.store.paths() == []

    done = talk.coterie("memory", "extract", session.id[:-1], *talk.model(saving(talk)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("saved testing.md\n1 model call, $0.")
    assert talk.store.paths() == ["testing.md"]
    assert "(testing.md)" in talk.store.index()
    [change] = [change for change in talk.store.changes() if change.path == "testing.md"]
    assert (change.author.by, change.author.agent, change.author.session) == ("extraction", "main", session.id)
    after = loaded(talk.session)
    assert after.reply == before.reply, "no turn was taken"
    assert after.extraction is not None
    assert (read_overview(session).state, read_overview(session).reason) == ("ended", "completed")
    assert talk.has_no_processes()

    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert talk.coterie("memory", "extract", session.id).returncode == 5
    unknown = talk.coterie("memory", "extract", "nobody")
    assert (unknown.returncode, "no session's id begins with 'nobody'" in unknown.stderr) == (2, True)

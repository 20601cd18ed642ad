"""A session in its own process: left alone, looked at, asked from a shell, and hurt."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from coterie.orchestrator.session.overview import read_overview
from coterie.orchestrator.session.root_lock import find_root
from tests.processes.project_shell import PATIENCE, ProjectShell
from tests.processes.session_processes import has_no_processes

pytestmark = pytest.mark.slow


class Sessions(ProjectShell):
    """A place for sessions of one command."""

    def run(self, script: str, *arguments: str) -> list[str]:
        """The command that runs a session whose model follows *script*."""
        return self.command("run", "Go.", *self.model(script), "--permission-mode", "bypassPermissions", *arguments)

    def has_no_processes(self) -> bool:
        """Whether nothing of its session is left."""
        return has_no_processes(self.session)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Path) -> Sessions:
    """An empty project."""
    del runtime
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    return Sessions(tmp_path / "project")


WAITING = """
main:
  - tools: [{Agent: {description: look, prompt: Look., name: scout}}]
  - text: "I was told: {{last_tool_result}}"
  - text: "I heard: {{last_user_text}}"
scout:
  - tools: [{Bash: {command: "env -u COTERIE_AGENT COTERIE stop $COTERIE_SESSION main 2> s; mv s asked; sleep 300"}}]
  - text: It cannot be seen.
"""


def test_detached_session_takes_commands_from_the_user_but_not_from_an_agent(
    place: Sessions,
) -> None:
    script = WAITING.replace("COTERIE stop", " ".join(place.command("stop")))
    started = subprocess.run(
        place.run(script, "--detach", "-p"), cwd=place.project, capture_output=True, text=True, check=True
    )
    session = place.session
    assert started.stdout.strip() == session.id
    assert place.becomes_true((place.project / "asked").exists)
    assert place.state("scout") == "running"

    wrong = place.coterie("stop", session.id, "scuot")
    assert (wrong.returncode, wrong.stderr) == (2, "Error: agent: 'scuot' is not running; did you mean scout?\n")
    moved = place.coterie("background", session.id, "scout", "--json")
    assert json.loads(moved.stdout) == {"session": session.id, "agents": ["scout"]}
    assert place.becomes_true(lambda: place.state("main") == "waiting")
    stopped = place.coterie("stop", session.id, "scout")
    assert stopped.stdout == f"stopped scout of session {session.id}\n"

    assert place.becomes_true(lambda: find_root(session) is None)
    assert place.becomes_true(place.has_no_processes)
    logs = place.coterie("logs", session.id).stdout
    assert "The user moved scout to the background." in logs
    assert re.search(r"I heard: .*the user stopped it", re.sub(r"\s+", " ", logs))
    refusal = "Error: agent: only the user can send this request, not an agent\n"
    assert (place.project / "asked").read_text() == refusal
    assert place.coterie("doctor").returncode == 0


SLEEPING = 'default: [{text: I sleep., tools: [{Bash: {command: "sleep 300"}}]}, {text: I woke., times: always}]'


def test_a_session_whose_viewer_is_killed_ends_with_its_record_and_can_be_resumed(place: Sessions) -> None:
    with subprocess.Popen(place.run(SLEEPING), cwd=place.project, stdout=subprocess.PIPE, text=True) as viewer:
        assert viewer.stdout is not None
        assert viewer.stdout.readline() == "I sleep.\n"
        viewer.kill()
    session = place.session
    assert place.becomes_true(lambda: find_root(session) is None)
    assert place.becomes_true(place.has_no_processes)
    overview = read_overview(session)
    assert (overview.state, overview.reason) == ("ended", "cancelled")
    script = str(place.project.parent / "script.yaml")
    resumed = place.coterie("resume", session.id, "--script", script, "-p")
    assert (resumed.returncode, resumed.stdout) == (0, "I woke.\n")


def test_a_lead_that_is_killed_goes_on_and_its_viewer_sees_the_end(place: Sessions) -> None:
    with subprocess.Popen(
        place.run(SLEEPING), cwd=place.project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as viewer:
        assert viewer.stdout is not None
        assert viewer.stdout.readline() == "I sleep.\n"
        root = find_root(place.session)
        assert root is not None
        [lead] = [child for child in psutil.Process(root.pid).children() if "coterie main" in " ".join(child.cmdline())]
        os.kill(lead.pid, signal.SIGKILL)
        said, aside = viewer.communicate(timeout=PATIENCE)
    assert (viewer.returncode, said) == (0, "I woke.\n")
    assert "main is starting: again, 1 of 2: Its process was ended by SIGKILL." in aside
    assert place.becomes_true(place.has_no_processes)


def test_a_root_that_is_killed_is_told_in_one_line(place: Sessions) -> None:
    with subprocess.Popen(
        place.run(SLEEPING, "-p"), cwd=place.project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as viewer:
        assert place.becomes_true(
            lambda: bool(list(place.project.parent.glob("home/projects/*/sessions/*/session.json")))
        )
        session = place.session
        assert place.becomes_true(lambda: place.state("main") == "running")
        root = find_root(session)
        assert root is not None
        os.kill(root.pid, signal.SIGKILL)
        said, errors = viewer.communicate(timeout=PATIENCE)
    assert (viewer.returncode, said) == (1, "")
    assert errors == f"Error: session {session.id} has ended before its task: its process was killed.\n"
    assert place.becomes_true(place.has_no_processes)
    assert place.coterie("doctor").returncode == 0

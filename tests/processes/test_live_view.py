"""The board of a real session at real terminals: in the run that started it, and in others."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coterie.agents.events.root_events import ApprovalDecided
from coterie.orchestrator.session.root_lock import find_root
from coterie.session_directory import SessionDirectory
from tests.orchestrator.pseudo_terminal import Program, open_program
from tests.processes.session_record import events

pytestmark = pytest.mark.slow

SETTINGS = """
[approvals]
plans = "human"
"""
SCRIPT = """
main:
  - tools: [{Agent: {description: build, prompt: Build it., name: builder, plan_required: true}}]
  - {text: "I wait."}
  - {text: "It is built."}
builder:
  - tools: [{ExitPlanMode: {plan: "Write everything.", files: [a.txt, b.txt]}}]
  - when: {last_tool_result: "Too much"}
    tools: [{ExitPlanMode: {plan: "Write a.txt alone.", files: [a.txt]}}]
  - tools: [{Write: {file_path: a.txt, content: "built"}}]
  - {text: "Done."}
"""
OPEN, CLOSED = "\x1b[?1049h", "\x1b[?1049l"
BOLD = "\x1b[1m"
"""Mark before the subject of an approval; the board may show the subject earlier, in the row of the agent."""


@pytest.fixture
def team(project: Path) -> Path:
    """A project whose lead starts a builder, whose plans the user approves."""
    (project.parent / "script.yaml").write_text(SCRIPT)
    (project / ".coterie").mkdir()
    (project / ".coterie" / "settings.toml").write_text(SETTINGS)
    return project


def coterie(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "coterie", *arguments]


def run(*arguments: str) -> list[str]:
    """Command line that starts a session."""
    return coterie("run", "Go.", "--script", "../script.yaml", "--permission-mode", "acceptEdits", *arguments)


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    return {**kept, "NO_COLOR": "1"}


@contextmanager
def at_a_terminal(project: Path, *command: str) -> Iterator[Program]:
    with open_program(command, cwd=project, env=environment()) as program:
        yield program
        assert "Traceback" not in program.output
        assert program.output.count(OPEN) == program.output.count(CLOSED)


def after_the_board(program: Program) -> str:
    """Return the content of the terminal after the board has closed."""
    return program.output.rpartition(CLOSED)[2]


def decisions(session: SessionDirectory) -> list[tuple[str, str, str]]:
    return [(each.id, each.verdict, each.by) for each in events(session, ApprovalDecided)]


def test_detached_session_is_shown_and_answered_from_other_terminals(team: Path) -> None:
    """Its questions wait: no request is refused because no client is connected."""
    with at_a_terminal(team, *run("--live")) as program:
        program.read_until("Write everything.")
        program.type("q")
        assert program.wait() == 0
        session = SessionDirectory.newest(team)
        goes_on = f"session {session.id} continues; reconnect with `coterie attach {session.id}`"
        assert after_the_board(program).strip() == goes_on
    attach = coterie("attach", session.id)
    with at_a_terminal(team, *attach) as first:
        first.read_until("Write everything.")
        first.type("q")
        assert first.wait() == 0
        assert after_the_board(first).strip() == goes_on
    assert find_root(session) is not None
    with (
        subprocess.Popen(
            attach, cwd=team, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as piped,
        at_a_terminal(team, *attach) as second,
    ):
        second.read_until(f"{BOLD}Write everything.")
        second.type("rrToo much.\r")
        second.read_until(f"{BOLD}Write a.txt alone.")
        second.type("aa")
        assert second.wait() == 0
        assert "It is built." in after_the_board(second)
        lines, words = piped.communicate(timeout=60)
        assert piped.returncode == 0
    said = " ".join(lines.split())
    assert "builder asks you for approval of its plan, plan-1: Write everything." in said
    assert "plan-1 was rejected by you: Too much." in said
    assert "\x1b" not in lines
    assert words == f"session {session.id} has ended: completed\n"
    with at_a_terminal(team, *attach) as late:
        assert late.wait() == 0
        assert OPEN not in late.output
        assert f"session {session.id} has ended: completed" in late.output
    assert decisions(session) == [("plan-1", "rejected", "human"), ("plan-2", "approved", "human")]

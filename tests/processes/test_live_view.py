"""The board of a real session at real terminals: in the run that started it, and in others."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coterie.agents.events.root_events import ApprovalDecided
from coterie.orchestrator.session.root_lock import find_root
from tests.orchestrator.pseudo_terminal import Program, open_program
from tests.processes.project_shell import ProjectShell

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
def place(place: ProjectShell, monkeypatch: pytest.MonkeyPatch) -> ProjectShell:
    """A project whose lead starts a builder, whose plans the user approves."""
    monkeypatch.setenv("NO_COLOR", "1")
    place.write(".coterie/settings.toml", SETTINGS)
    return place


@contextmanager
def at_a_terminal(place: ProjectShell, *arguments: str) -> Iterator[Program]:
    with open_program(place.command(*arguments), cwd=place.project, env=os.environ) as program:
        yield program
        assert "Traceback" not in program.output
        assert program.output.count(OPEN) == program.output.count(CLOSED)


def after_the_board(program: Program) -> str:
    """Return the content of the terminal after the board has closed."""
    return program.output.rpartition(CLOSED)[2]


def test_detached_session_is_shown_and_answered_from_other_terminals(place: ProjectShell) -> None:
    """Its questions wait: no request is refused because no client is connected."""
    run = ("run", "Go.", *place.model(SCRIPT), "--permission-mode", "acceptEdits", "--live")
    with at_a_terminal(place, *run) as program:
        program.read_until("Write everything.")
        program.type("q")
        assert program.wait() == 0
        session = place.session
        goes_on = f"session {session.id} continues; reconnect with `coterie attach {session.id}`"
        assert after_the_board(program).strip() == goes_on
    attach = ("attach", session.id)
    with at_a_terminal(place, *attach) as first:
        first.read_until("Write everything.")
        first.type("q")
        assert first.wait() == 0
        assert after_the_board(first).strip() == goes_on
    assert find_root(session) is not None
    with place.start(*attach) as piped, at_a_terminal(place, *attach) as second:
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
    with at_a_terminal(place, *attach) as late:
        assert late.wait() == 0
        assert OPEN not in late.output
        assert f"session {session.id} has ended: completed" in late.output
    decided = [(each.id, each.verdict, each.by) for each in place.events(ApprovalDecided)]
    assert decided == [("plan-1", "rejected", "human"), ("plan-2", "approved", "human")]

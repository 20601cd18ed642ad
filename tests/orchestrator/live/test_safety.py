"""Nothing that an agent says, or a file holds, acts on the terminal of whoever looks."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from coterie.agents import events
from coterie.agents.events import Event
from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.orchestrator.cli.live.canvas import Canvas
from coterie.orchestrator.cli.live.details import detail_lines
from coterie.orchestrator.cli.live.drawing import Page, draw
from coterie.orchestrator.cli.live.showing import print_last_board
from coterie.orchestrator.cli.live.state import Board
from coterie.orchestrator.cli.live.steering import Chosen, Steering
from coterie.orchestrator.events.observed import MessageRecorded, observe
from coterie.orchestrator.session import Session
from tests.orchestrator.live.stage import Stage
from tests.orchestrator.test_ledger import line

OURS = re.compile(r"\x1b\[(?:\?2026[hl]|2J|2K|[0-9]+;1H|[0-9;]*m)")
"""The only sequences that a board is made of: begin and end, clear, a line's place, a colour."""
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What no line may hold; lines themselves and tabs may be."""
SEQUENCES = ("\x1b[2J", "\x1b]0;x\x07", "\x1b]52;c;aGk=\x1b\\", "\x9b5A", "\x1bc", "\x1b[", "\x1b", "\r", "\n", "\b")
HIDDEN = ("\u202e", "\u2066", "\U000e0041", "\ufeff", "\u2028", "\ud800", "\t", "\x00", "\x7f", "\x0e", "\u0301")

words = st.lists(st.sampled_from((*SEQUENCES, *HIDDEN, "[31m", "6n")) | st.text(max_size=8), max_size=6).map("".join)


def told(text: str) -> list[Event]:
    """Events with *text* wherever they have one."""
    call = {"type": "tool_use", "id": "t", "name": text, "input": {text: text}}
    return [
        events.AgentChanged(name=text or "x", incarnation=1, state="stalled", what=text, parent=text),
        events.Started(session=text, incarnation=2, model=text, permission_mode=text, project=text, tools=[text]),
        MessageRecorded(role="assistant", content=[{"type": "text", "text": text}, call]),
        events.ToolStarted(id="t", name=text),
        events.Progress(text=text, turn=1, seconds=1.0, cost_usd="0"),
        events.Noticed(source=text, reason=text),
        events.Retrying(error=text, seconds=1.0),
        events.Decided(tool=text, verdict="denied", by=text, reason=text),
        events.ApprovalAsked(id="p-1", what="plan", name=text, incarnation=1, by=text, subject=text),
        events.AnswerRefused(id=text, by=text, reason=text),
        events.ApprovalDecided(id="p-0", name=text, verdict="rejected", by=text, feedback=text),
        events.ToolEnded(id="u", name=text, is_error=True, seconds=1.0, characters=1, reason=text),
        events.Finished(reason=text, result=text, turns=1, usage={}, cost_usd="0", error=text),
    ]


def full_board(text: str) -> Board:
    """A board on which *text* stands everywhere."""
    board = Board(session="s", task=text, started=0.0)
    for event in (events.Budgeted(dollars="1"), *told(text)):
        board.take(observe(event, session="s", agent="main", at=1.0))
    board.take(
        observe(
            events.Finished(reason="x", result=text, turns=1, usage={}, cost_usd="0"),
            session="s",
            agent=text or "x",
            at=2.0,
        )
    )
    sender = Sender(name="a", incarnation=1, session="s", kind="peer")
    letter = Envelope(sender=sender, recipient=Recipient(name="b"), sequence=1, body=text, created=1.0)
    board.post(letter)
    board.charge(line(text or "x", parent=text, output=1))
    return board


def painted(lines: list[Text], width: int, height: int) -> str:
    """What is written to show *lines*, without our own sequences."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, height=height, highlight=False, markup=False)
    Canvas(console).paint(lines)
    return OURS.sub("", file.getvalue())


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(words)
def test_whatever_is_said_the_board_is_made_of_letters_and_our_own_sequences(text: str) -> None:
    board = full_board(text)
    steering = Steering(board)
    steering.press("a")
    steering.tell(text)
    page = Page(width=100, height=40, now=1.0, chosen=steering.chosen, foot=steering.foot(100))
    assert painted(draw(board, page), 100, 40).isprintable()


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(text=words)
def test_so_is_all_that_there_is_to_know_of_an_agent(tmp_path: Path, text: str) -> None:
    board = full_board(text)
    session = Session(id="s", project=tmp_path, task="t", model="m", started=0.0)
    lines = detail_lines(session, board, Chosen("agent", "main"), 60)
    assert max(each.cell_len for each in lines) <= 60
    assert painted(lines, 60, 100).isprintable()


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(words)
def test_what_is_printed_in_the_end_has_lines_and_no_sequences(text: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        print_last_board(full_board(text))
    assert not ACTING.search(output.getvalue())


def test_who_says_yes_sees_what_a_terminal_would_hide(stage: Stage) -> None:
    evil = "ls \x1b[8m; rm -r / \u202e\r"
    stage.change("a", "running")
    stage.ask("permission-1", "a", evil)
    stage.ask("plan-2", "a", "", plan=f"Look.\n\n  {evil}\n", by="lead")
    board = stage.board()
    [call, plan] = (
        "\n".join(each.plain for each in detail_lines(stage.session, board, Chosen("approval", id_), 80))
        for id_ in ("permission-1", "plan-2")
    )
    assert call.startswith("permission of a (permission-1): you decide\n")
    assert "Bash ls \\x1b[8m; rm -r / \\u202e\\r" in call
    assert plan.startswith("plan of a (plan-2): for the lead, and you may decide too\n")
    assert "  ls \\x1b[8m; rm -r / \\u202e\\r" in plan
    assert plan.endswith("files that it would change:\n  a.py")


def test_who_says_yes_is_told_of_a_record_that_was_changed_or_is_gone(stage: Stage) -> None:
    stage.change("a", "running")
    stage.ask("permission-1", "a", "rm -r /")
    path = stage.session.directory / "approvals" / "permission-1.json"
    path.write_bytes(path.read_bytes().replace(b"rm -r /", b"ls"))
    chosen = Chosen("approval", "permission-1")
    lines = [each.plain for each in detail_lines(stage.session, stage.board(), chosen, 80)]
    assert "do not trust it: it was written or changed by somebody else than the root" in lines
    path.unlink()
    assert detail_lines(stage.session, stage.board(), chosen, 80)[-1].plain == "Bash rm -r /"


def test_the_details_of_an_agent_are_all_that_is_known(stage: Stage) -> None:
    stage.change("a", "waiting", "2 agents", pid=42)
    stage.charge("a", parent="main", read=900, input=100, output=5)
    stage.agent("a").tell(
        events.Started(
            session="s", incarnation=1, model="m", permission_mode="default", project="/p", tools=[], definition="scout"
        )
    )
    stage.agent("a").say("assistant", "I look at it. " * 20)
    lines = [each.plain for each in detail_lines(stage.session, stage.board(), Chosen("agent", "a"), 40)]
    text = "\n".join(lines)
    assert text.startswith("a, start 1\nis waiting: 2 agents\n\nstarted by  main\nkind        scout\nmodel       m\n")
    assert "process     42" in text
    assert "1,000 tokens in, 90 % of" in text
    assert "I look at it. " * 2 in text.replace("\n", " ")

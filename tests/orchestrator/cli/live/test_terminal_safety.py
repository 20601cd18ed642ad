"""Text of agents and files cannot control the terminal."""

import contextlib
import io
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from coterie.agents.events import agent_events
from coterie.agents.events.agent_events import Event
from coterie.agents.events.event_reader import MessageRecorded, make_session_event
from coterie.agents.events.root_events import AgentChanged, ApprovalAsked, ApprovalDecided, ApprovalRejected, Budgeted
from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.orchestrator.cli.live.board import SessionBoard
from coterie.orchestrator.cli.live.board_render import BoardPage, render_board
from coterie.orchestrator.cli.live.canvas import Canvas
from coterie.orchestrator.cli.live.controller import BoardController, Selection
from coterie.orchestrator.cli.live.detail_pane import detail_lines
from coterie.orchestrator.cli.live.live_view import print_last_board
from coterie.session_directory import SessionDirectory
from tests.examples import examples
from tests.orchestrator.cli.live.board_session import BoardSession
from tests.orchestrator.gateway.test_ledger import line
from tests.orchestrator.session_writer import STARTED

OURS = re.compile(r"\x1b\[(?:\?2026[hl]|2J|2K|[0-9]+;1H|[0-9;]*m)")
"""Control sequences that a board may write: begin and end, clear, position, color."""
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that no line may contain; newlines and tabs are allowed."""
SEQUENCES = ("\x1b[2J", "\x1b]0;x\x07", "\x1b]52;c;aGk=\x1b\\", "\x9b5A", "\x1bc", "\x1b[", "\x1b", "\r", "\n", "\b")
HIDDEN = ("\u202e", "\u2066", "\U000e0041", "\ufeff", "\u2028", "\ud800", "\t", "\x00", "\x7f", "\x0e", "\u0301")

words = st.lists(st.sampled_from((*SEQUENCES, *HIDDEN, "[31m", "6n")) | st.text(max_size=8), max_size=6).map("".join)


def hostile_events(text: str) -> list[Event]:
    call = {"type": "tool_use", "id": "t", "name": text, "input": {text: text}}
    return [
        AgentChanged(name=text or "x", incarnation=1, state="stalled", what=text, parent=text),
        agent_events.RunStarted(
            session=text, incarnation=2, model=text, permission_mode=text, project=text, tools=[text]
        ),
        MessageRecorded(role="assistant", content=[{"type": "text", "text": text}, call]),
        agent_events.ToolStarted(id="t", name=text),
        agent_events.ProgressSummarized(text=text, turn=1, seconds=1.0, cost_usd="0"),
        agent_events.Noticed(source=text, reason=text),
        agent_events.Retrying(error=text, seconds=1.0),
        agent_events.PermissionDecided(tool=text, verdict="denied", by=text, reason=text),
        ApprovalAsked(id="p-1", what="plan", name=text, incarnation=1, by=text, subject=text),
        ApprovalRejected(id=text, by=text, reason=text),
        ApprovalDecided(id="p-0", name=text, verdict="rejected", by=text, feedback=text),
        agent_events.ToolEnded(id="u", name=text, is_error=True, seconds=1.0, characters=1, reason=text),
        agent_events.Finished(reason=text, result=text, turns=1, usage={}, cost_usd="0", error=text),
    ]


def full_board(text: str) -> SessionBoard:
    board = SessionBoard(session="s", task=text, started=0.0)
    for event in (Budgeted(dollars="1"), *hostile_events(text)):
        board.handle(make_session_event(event, session="s", agent="main", at=1.0))
    finished = agent_events.Finished(reason="x", result=text, turns=1, usage={}, cost_usd="0")
    board.handle(make_session_event(finished, session="s", agent=text or "x", at=2.0))
    sender = Sender(name="a", incarnation=1, session="s", kind="peer")
    letter = Envelope(sender=sender, recipient=Recipient(name="b"), sequence=1, body=text, created=1.0)
    board.add_mail(letter)
    board.add_cost(line(text or "x", parent=text, output=1))
    return board


def painted(lines: list[Text], width: int, height: int) -> str:
    """Output for *lines* without the allowed sequences."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, height=height, highlight=False, markup=False)
    Canvas(console).paint(lines)
    return OURS.sub("", file.getvalue())


@pytest.mark.slow
@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(words)
def test_board_has_only_text_and_known_sequences(text: str) -> None:
    board = full_board(text)
    steering = BoardController(board)
    steering.handle_key("a")
    steering.show_notice(text)
    page = BoardPage(width=100, height=40, now=1.0, chosen=steering.chosen, foot=steering.foot(100))
    assert painted(render_board(board, page), 100, 40).isprintable()


@pytest.mark.slow
@examples(40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(text=words)
def test_details_have_only_text_and_known_sequences(tmp_path: Path, text: str) -> None:
    board = full_board(text)
    session = SessionDirectory(id="s", project=tmp_path, task="t", model="m", started=0.0)
    lines = detail_lines(session, board, Selection("agent", "main"), 60)
    assert max(each.cell_len for each in lines) <= 60
    assert painted(lines, 60, 100).isprintable()


@pytest.mark.slow
@examples(40, suppress_health_check=[HealthCheck.too_slow])
@given(words)
def test_last_board_has_no_sequences(text: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        print_last_board(full_board(text))
    assert not ACTING.search(output.getvalue())


def test_details_of_an_approval_escape_hidden_characters(stage: BoardSession) -> None:
    evil = "ls \x1b[8m; rm -r / \u202e\r"
    stage.change("a", "running")
    stage.ask("permission-1", "a", evil)
    stage.ask("plan-2", "a", "", plan=f"Look.\n\n  {evil}\n", by="lead")
    board = stage.board()
    [call, plan] = (
        "\n".join(each.plain for each in detail_lines(stage.session, board, Selection("approval", id_), 80))
        for id_ in ("permission-1", "plan-2")
    )
    assert call.startswith("permission of a (permission-1): you decide\n")
    assert "Bash ls \\x1b[8m; rm -r / \\u202e\\r" in call
    assert plan.startswith("plan of a (plan-2): decided by the lead; you may decide too\n")
    assert "  ls \\x1b[8m; rm -r / \\u202e\\r" in plan
    assert plan.endswith("files it would change:\n  a.py")


def test_details_warn_of_a_changed_approval(stage: BoardSession) -> None:
    stage.change("a", "running")
    stage.ask("permission-1", "a", "rm -r /")
    path = stage.session.directory / "approvals" / "permission-1.json"
    path.write_bytes(path.read_bytes().replace(b"rm -r /", b"ls"))
    chosen = Selection("approval", "permission-1")
    lines = [each.plain for each in detail_lines(stage.session, stage.board(), chosen, 80)]
    assert any(line.startswith("do not trust this request: ") for line in lines)
    path.unlink()
    assert detail_lines(stage.session, stage.board(), chosen, 80)[-1].plain == "Bash rm -r /"


def test_details_of_an_agent_have_all_facts(stage: BoardSession) -> None:
    stage.change("a", "waiting", "2 agents", pid=42)
    stage.add_cost("a", parent="main", read=900, input=100, output=5)
    stage.agent("a").write_event(msgspec.structs.replace(STARTED, definition="scout"))
    stage.agent("a").write_text("assistant", "I look at it. " * 20)
    lines = [each.plain for each in detail_lines(stage.session, stage.board(), Selection("agent", "a"), 40)]
    text = "\n".join(lines)
    assert text.startswith("a, start 1\nis waiting: 2 agents\n\nstarted by  main\nkind        scout\nmodel       m\n")
    assert "process     42" in text
    assert "1,000 tokens in, 90 % of" in text
    assert "I look at it. " * 2 in text.replace("\n", " ")

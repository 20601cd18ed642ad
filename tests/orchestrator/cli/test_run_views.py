"""Views of a run: on a terminal, as plain lines, and for programs."""

import io
import json
from typing import Any

import msgspec
import pytest
import trio
from rich.console import Console

from coterie.agents.events.agent_events import Event, Noticed, Retrying, TextEmitted, ToolEnded, ToolStarted
from coterie.agents.events.event_reader import MessageRecorded, ReplyRecorded, SessionEvent, make_session_event
from coterie.orchestrator.cli.output import escape_invisible, one_line, sanitize
from coterie.orchestrator.cli.views.plain import PlainView
from coterie.orchestrator.cli.views.program_views import SummaryView
from coterie.orchestrator.cli.views.terminal_view import StatusLine, TerminalView
from coterie.orchestrator.cli.views.view import show_events
from coterie.orchestrator.events.follower import open_follower
from coterie.session_directory import SessionDirectory
from tests.orchestrator.pseudo_terminal import screen
from tests.orchestrator.session_writer import FINISHED, STARTED, SteppingClock, open_writer, reply

CALL: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make test", "timeout": 5}}
ENDED = ToolEnded(id="t1", name="Bash", is_error=False, seconds=1.25, characters=3)


def seen(event: Event, agent: str = "main") -> SessionEvent:
    return make_session_event(event, session="s1", agent=agent, at=1.0)


def reply_recorded(*blocks: dict[str, Any]) -> MessageRecorded:
    return MessageRecorded(role="assistant", content=list(blocks))


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


class DrawnView:
    def __init__(self, width: int = 40, height: int = 12) -> None:
        self.file = io.StringIO()
        size: dict[str, Any] = {"width": width, "height": height}
        self.view = TerminalView(Console(file=self.file, force_terminal=True, highlight=False, markup=False, **size))

    def show(self, *events: Event) -> None:
        for event in events:
            self.view.handle(seen(event))
        self.view.tick()

    def lines(self) -> list[str]:
        """Lines on the screen, without empty ones at its end."""
        lines = [line.rstrip() for line in screen(self.file.getvalue())]
        while lines and not lines[-1]:
            lines.pop()
        return lines


def test_streamed_text_becomes_final_with_its_message_unless_its_call_fails() -> None:
    drawn_view = DrawnView()
    drawn_view.show(STARTED, TextEmitted(turn=1, text="Here"), Retrying(error="529", seconds=1.0))
    assert drawn_view.lines() == ["  model call failed: 529; retrying in", "1.0 s", "0 s | m"]
    drawn_view = DrawnView()
    drawn_view.show(STARTED, TextEmitted(turn=1, text="I lo"))
    assert drawn_view.lines() == ["I lo", "0 s | m"]
    drawn_view.show(TextEmitted(turn=1, text="ok."))
    assert drawn_view.lines() == ["I look.", "0 s | m"]
    drawn_view.show(reply_recorded(text("I look.")))
    assert drawn_view.lines() == ["I look.", "0 s | m"]
    drawn_view.show(reply_recorded(text("Again.")))
    assert drawn_view.lines() == ["I look.", "", "Again.", "0 s | m"]


def test_the_end_leaves_text_status_and_cursor() -> None:
    drawn_view = DrawnView(width=100)
    drawn_view.show(STARTED, reply_recorded(text("Done.")))
    drawn_view.show(FINISHED)
    drawn_view.view.close()
    end = "completed after 1 turn; 0 tokens in, 0 % of them from cache, 0 out, $0.100000; session s1"
    assert drawn_view.lines() == ["Done.", "", end]
    drawn = drawn_view.file.getvalue()
    assert drawn.rindex("\x1b[?25h") > drawn.rindex("\x1b[?25l")


@pytest.mark.parametrize("width", [20, 5, 1])
def test_a_narrow_terminal_is_filled_and_not_broken(width: int) -> None:
    drawn_view = DrawnView(width=width, height=4)
    running = reply_recorded(CALL), ToolStarted(id="t1", name="Bash")
    for event in (STARTED, TextEmitted(turn=1, text="w" * 100), *running, ENDED, FINISHED):
        drawn_view.show(event)
        assert all(len(line) <= width for line in drawn_view.lines())


def test_a_long_text_and_many_running_calls_show_their_end_and_the_status() -> None:
    drawn_view = DrawnView(width=20, height=6)
    drawn_view.show(STARTED, TextEmitted(turn=1, text="\n".join(f"line {number}" for number in range(2000))))
    assert drawn_view.lines() == ["line 1996", "line 1997", "line 1998", "line 1999", "0 s | m"]
    drawn_view = DrawnView(height=8)
    drawn_view.show(STARTED, *(ToolStarted(id=str(number), name=f"Read{number}") for number in range(50)))
    assert drawn_view.lines() == ["  Read46  0 s", "  Read47  0 s", "  Read48  0 s", "  Read49  0 s", "0 s | m"]


def test_text_of_others_cannot_control_the_terminal() -> None:
    """The emulated screen fails for any sequence that the view itself does not write."""
    drawn_view = DrawnView(width=200)
    evil = "\x1b[2J\x1b]0;x\x07\x1b]52;c;aGk=\x1b\\\x9b5A\u202eab\x07\x00\x1bc"
    call = {**CALL, "name": evil, "input": {"command": evil}}
    drawn_view.show(STARTED, TextEmitted(turn=1, text=evil[:5]), TextEmitted(turn=1, text=evil[5:]))
    drawn_view.show(
        reply_recorded(text(evil), call), ToolStarted(id="t1", name=evil), Noticed(source=evil, reason=evil)
    )
    drawn_view.show(ToolEnded(id="t1", name=evil, is_error=True, seconds=1.0, characters=1, reason=evil))
    drawn_view.show(msgspec.structs.replace(FINISHED, error=evil))
    drawn_view.view.close()
    assert "".join(drawn_view.lines()).isprintable()


def test_call_shows_its_time_then_its_outcome_also_after_a_pause() -> None:
    drawn_view = DrawnView()
    drawn_view.show(STARTED, reply_recorded(CALL), ToolStarted(id="t1", name="Bash"))
    assert drawn_view.lines() == ["  Bash make test  0 s", "0 s | m"]
    with drawn_view.view.paused():
        drawn = drawn_view.file.getvalue()
        drawn_view.show(ENDED, reply_recorded(text("Good.")))
        assert drawn_view.file.getvalue() == drawn
        assert drawn_view.lines() == []
    drawn_view.view.tick()
    assert drawn_view.lines() == ["  Bash make test  ok  1.2 s", "", "Good.", "0 s | m"]


def test_status_line_leaves_out_facts_that_do_not_fit() -> None:
    status = StatusLine()
    status.model = "claude-opus-5-5"
    record = reply(3)
    members = {name: getattr(record, name) for name in ReplyRecorded.__struct_fields__}
    status.count(ReplyRecorded(**members))
    whole = "0 s | turn 3 | $0.0100 | 5 tokens in, 0 % cached | 7 out | window 0 % | claude-opus-5-5"
    assert status.line(200) == whole
    assert status.line(30) == "0 s | turn 3 | $0.0100"
    assert status.line(2) == ""


def test_plain_view_separates_replies_from_status_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainView()
    for event in (
        STARTED,
        TextEmitted(turn=1, text="I t"),
        reply_recorded(text("I try."), CALL),
        msgspec.structs.replace(ENDED, is_error=True, reason="no\x1b[2J rule"),
        msgspec.structs.replace(FINISHED, error="503"),
    ):
        view.handle(seen(event))
    out, err = capsys.readouterr()
    assert out == "I try.\n"
    assert err.splitlines() == [
        "  Bash(command='make test', timeout=5)  failed: no rule  1.2 s",
        "completed after 1 turn; 0 tokens in, 0 % of them from cache, 0 out, $0.100000; session s1",
        "Error: 503",
    ]


async def test_summary_has_session_transcript_and_cost_of_this_run(
    session: SessionDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_writer(session.directory, clock=SteppingClock()) as agent, trio.fail_after(5):
        agent.write_event(STARTED)
        agent.write_event(FINISHED)
        async with open_follower(session.directory) as follower, trio.open_nursery() as nursery:
            follower.skip()
            nursery.start_soon(show_events, SummaryView(), follower)
            agent.write_event(STARTED)
            await trio.testing.wait_all_tasks_blocked()
            agent.write_text("assistant", "done", reply())
            agent.write_event(FINISHED)
    summary = json.loads(capsys.readouterr().out)
    assert summary.pop("transcript") == str(session.directory / "agents/main/transcript.jsonl")
    ended = {"reason": "completed", "result": "done", "turns": 1, "seconds": 2.0, "error": None}
    assert summary == {"session_id": session.id, "model": "m", "usage": {}, "cost_usd": "0.1", **ended}


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("a\r\nb\rc\u2028d", "a\nb\nc\nd"),
        ("a\tb", "a\tb"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ended", "]0;never ended"),
        ("\x1bPq data\x1b\\x", "x"),
        ("\x1b(0x", "x"),
        ("\x9b2Jx\x85y", "2Jx\ny"),
        ("a\u202eb\u2066c\U000e0041", "abc"),
        ("\ud800", "\ufffd"),
        ("👩\u200d💻 é", "👩\u200d💻 é"),
    ],
)
def test_sanitize_removes_control_sequences(written: str, shown: str) -> None:
    assert sanitize(written) == shown


def test_one_line_truncates_and_escape_invisible_hides_nothing() -> None:
    assert one_line("a\n b\x1b[2J  c", 100) == "a b c"
    assert one_line("abcdefgh", 6) == "abc..."
    assert escape_invisible("rm\u202e \x1b[2K\té\nx") == "rm\\u202e \\x1b[2K\\té\nx"

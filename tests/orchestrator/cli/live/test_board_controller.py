"""Keys of a real pseudo-terminal, and their effects: choose, show details, answer, stop and leave."""

import os
import termios
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.events.agent_events import Event
from coterie.agents.events.event_reader import make_session_event
from coterie.agents.events.root_events import AgentChanged, ApprovalAsked, ApprovalDecided
from coterie.orchestrator.cli.live.board import SessionBoard
from coterie.orchestrator.cli.live.controller import (
    BoardController,
    BoardRequest,
    Selection,
)
from coterie.orchestrator.cli.live.keyboard import Keyboard, has_keyboard, open_keyboard, parse_keys
from coterie.orchestrator.control.requests import DecideApproval, StopAgent


@attrs.define(eq=False)
class PseudoTerminal:
    master: int
    slave: int

    @property
    def path(self) -> Path:
        return Path(os.ttyname(self.slave))

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)


@pytest.fixture
def terminal() -> Iterator[PseudoTerminal]:
    master, slave = os.openpty()
    made = PseudoTerminal(master, slave)
    yield made
    for descriptor in (made.master, made.slave):
        if descriptor >= 0:
            os.close(descriptor)


async def read(keyboard: Keyboard) -> list[str]:
    with trio.fail_after(60):
        return await keyboard.read()


async def test_keys_are_read_singly_and_the_terminal_is_restored(terminal: PseudoTerminal, tmp_path: Path) -> None:
    assert not has_keyboard(tmp_path / "none")
    found = termios.tcgetattr(terminal.slave)
    with open_keyboard(terminal.path) as keyboard:
        assert termios.tcgetattr(terminal.slave) != found
        terminal.type("a\x1b[A\u00e9".encode())
        assert await read(keyboard) == ["a", "up", "\u00e9"]
    assert termios.tcgetattr(terminal.slave) == found


async def test_a_key_in_pieces_is_one_key(terminal: PseudoTerminal, mock_clock: trio.testing.MockClock) -> None:
    """The clock does not advance, so the rest of a key always arrives in time."""
    del mock_clock
    keys: list[str] = []

    async def collect(keyboard: Keyboard) -> None:
        keys.extend(await read(keyboard))

    with open_keyboard(terminal.path) as keyboard:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect, keyboard)
            for piece in (b"\x1b", b"[", b"B"):
                terminal.type(piece)
                await trio.testing.wait_all_tasks_blocked(0.002)
        assert keys == ["down"]
        terminal.type(b"\xc3")
        assert await read(keyboard) == []
        terminal.type(b"\xa9")
        assert await read(keyboard) == ["\u00e9"]


async def test_a_paste_in_pieces_is_one_key(terminal: PseudoTerminal) -> None:
    with open_keyboard(terminal.path) as keyboard:
        terminal.type(b"x\x1b[200~aa")
        assert await read(keyboard) == ["x"]
        terminal.type(b"qq")
        assert await read(keyboard) == []
        terminal.type(b"\x1b[201~y")
        assert await read(keyboard) == ["pasted aaqq", "y"]


async def test_a_single_escape_is_a_key(terminal: PseudoTerminal, autojump_clock: trio.testing.MockClock) -> None:
    with open_keyboard(terminal.path) as keyboard:
        terminal.type(b"\x1b")
        assert await read(keyboard) == ["escape"]
        assert autojump_clock.current_time() > 0


async def test_a_closed_terminal_is_reported(terminal: PseudoTerminal) -> None:
    with open_keyboard(terminal.path) as keyboard:
        os.close(terminal.master)
        terminal.master = -1
        assert await read(keyboard) == ["gone"]


ASKED = ApprovalAsked(id="p-1", what="permission", name="a", incarnation=1, by="human", subject="Bash ls")
LEADS = ApprovalAsked(id="plan-2", what="plan", name="a", incarnation=1, by="lead", subject="Look first")


def agent(name: str, state: str = "running") -> AgentChanged:
    return AgentChanged(name=name, incarnation=1, state=state, parent=None if name == "main" else "main")  # type: ignore[arg-type] # of those that are


def apply_event(board: SessionBoard, *events: Event) -> None:
    for event in events:
        board.handle(make_session_event(event, session="s", agent="root", at=1.0))


def make_controller(*events: Event, only: str | None = None) -> BoardController:
    board = SessionBoard(session="s", task="t", started=0.0)
    apply_event(board, agent("main"), agent("a"), agent("b", "done"), *events)
    return BoardController(board, only)


def press(controller: BoardController, *keys: str) -> list[BoardRequest]:
    return [request for key in keys if (request := controller.handle_key(key)) is not None]


def test_arrow_keys_choose_lines_and_stop_at_the_ends() -> None:
    controller = make_controller(LEADS, ASKED)
    found = []
    for key in ("up", "down", "j", "down", "down", "down", "k", "page up", "page down"):
        press(controller, key)
        assert controller.chosen is not None
        found.append(controller.chosen.name)
    assert found == ["p-1", "plan-2", "main", "a", "b", "b", "a", "p-1", "b"]


def test_approval_takes_two_keys_unless_it_was_chosen() -> None:
    controller = make_controller(LEADS, ASKED)
    assert press(controller, "a") == []
    assert controller.foot(80) == "a again: approve Bash ls"
    assert press(controller, "a") == [DecideApproval(id="p-1", approve=True)]
    assert controller.is_asking
    assert press(controller, "a") == []
    assert controller.foot(80) == "the last request is not answered yet; wait and press the key again"
    controller.show_notice("approved")
    assert controller.foot(80) == "approved"


def test_an_answered_approval_is_no_longer_chosen() -> None:
    controller = make_controller(ASKED, LEADS)
    press(controller, "down")
    apply_event(controller.board, ApprovalDecided(id="p-1", name="a", verdict="approved", by="human"))
    assert controller.chosen is None
    assert press(controller, "a") == []
    assert controller.chosen == Selection("approval", "plan-2")


def test_rejecting_needs_a_reason_that_can_be_edited() -> None:
    controller = make_controller(ASKED)
    assert press(controller, "down", "r", "enter", *"nq", "backspace", *"o!") == []
    assert controller.foot(80) == "why? no!_   enter: reject   escape: back"
    assert press(controller, "escape", "r", *"xx", "clear", *"not ", "up", "enter") == [
        DecideApproval(id="p-1", approve=False, feedback="not")
    ]


def test_pasted_text_is_never_a_command() -> None:
    controller = make_controller(ASKED)
    assert press(controller, "pasted aaq") == []
    assert "ignored" in controller.foot(80)
    assert (controller.chosen, controller.has_quit) == (None, False)
    assert press(controller, "down", "r", "pasted not like this", "enter") == [
        DecideApproval(id="p-1", approve=False, feedback="not like this")
    ]


def test_a_reason_for_an_answered_approval_is_not_sent() -> None:
    controller = make_controller(ASKED)
    press(controller, "down", "r", *"no")
    apply_event(controller.board, ApprovalDecided(id="p-1", name="a", verdict="withdrawn", by="a"))
    assert press(controller, "enter") == []
    assert "already been answered" in controller.foot(80)


def test_stopping_asks_for_confirmation() -> None:
    controller = make_controller()
    assert press(controller, "a") == []
    assert controller.foot(80) == "no approval request is listed"
    assert press(controller, "s") == []
    assert controller.foot(80) == "choose an agent first, with up and down"
    assert press(controller, "down", "down", "s") == []
    assert controller.foot(80) == "stop a and the agents it started?   y: yes   any other key: no"
    assert press(controller, "x", "s", "y") == [StopAgent(name="a")]
    controller.show_notice("stopped a")
    assert press(controller, "down", "s", "y") == []


def test_pages_open_scroll_and_close() -> None:
    controller = make_controller(ASKED)
    assert press(controller, "enter") == []
    assert (controller.page, controller.foot(80)) == ("board", "choose a line first, with up and down")
    press(controller, "down", "enter", "down", "page down", "up")
    assert (controller.page, controller.scroll) == ("details", 10)
    assert press(controller, "a") == [DecideApproval(id="p-1", approve=True)]
    apply_event(controller.board, ApprovalDecided(id="p-1", name="a", verdict="approved", by="human"))
    assert controller.page == "board"
    press(controller, "down")
    assert (controller.page, controller.chosen) == ("board", Selection("agent", "main"))


@pytest.mark.parametrize("keys", [("q",), ("gone",), ("down", "r", *"no", "gone"), ("?", "q")])
def test_q_or_a_closed_terminal_leaves_the_board(keys: tuple[str, ...]) -> None:
    controller = make_controller(ASKED)
    assert press(controller, *keys) == []
    assert controller.has_quit


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("aQ?", ["a", "Q", "?"]),
        ("\x1b[A\x1bOB\x1b[5~\x1b[6~", ["up", "down", "page up", "page down"]),
        ("\x1b", ["escape"]),
        ("\x1b\x1b", ["escape", "escape"]),
        ("\r\n\x7f\x08\x15", ["enter", "enter", "backspace", "backspace", "clear"]),
        ("\x1b[1;5Cx\x1bq\x00\x01\x9b", ["x"]),
        ("a\x1b[200~aa\rq\x1b[A\n\x1b[201~b", ["a", "pasted aa q", "b"]),
        ("\u00e9\u4f60", ["\u00e9", "\u4f60"]),
    ],
)
def test_terminal_input_is_parsed_into_keys(typed: str, keys: list[str]) -> None:
    assert parse_keys(typed) == keys

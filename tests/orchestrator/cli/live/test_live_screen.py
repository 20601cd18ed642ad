"""Live screen with a real keyboard, a real control socket and growing files."""

import io
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import msgspec
import pytest
import trio
from rich.console import Console, ConsoleDimensions

from coterie.agents.root_link.messages import RunFailed
from coterie.clock import Clock
from coterie.framing import read_frame, write_frame
from coterie.orchestrator.cli.live.controller import BoardController
from coterie.orchestrator.cli.live.keyboard import open_keyboard
from coterie.orchestrator.cli.live.live_screen import LiveScreen
from coterie.orchestrator.cli.live.poller import open_poller
from coterie.orchestrator.control.requests import (
    ControlRequest,
    ControlResponse,
    DecideApproval,
    RequestDone,
    StopAgent,
    control_address,
    request_decoder,
)
from coterie.orchestrator.control.server import open_listener
from coterie.orchestrator.session.root_lock import open_root_record
from tests.orchestrator.cli.live.board_session import BoardSession

pytestmark = pytest.mark.slow

_TOKEN = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|([^\x1b]+)")


FOUND = {"?1049": False, "?25": True, "?7": True, "?2004": False}
"""Modes that a shell expects: no alternate screen, a cursor, wrapping, and no marked pastes."""


@attrs.define(eq=False)
class Terminal:
    """Screen without wrapping; fails on sequences that the board must not write."""

    rows: list[str] = attrs.field(factory=lambda: [""] * 24)
    modes: dict[str, bool] = attrs.field(factory=FOUND.copy)
    _row: int = 0

    def feed(self, output: str) -> None:
        position = 0
        for token in _TOKEN.finditer(output):
            assert token.start() == position, f"what is this: {output[position : position + 20]!r}"
            position = token.end()
            number, command, text = token.groups()
            if text is not None:
                assert text.isprintable(), text
                self.rows[self._row] += text
            else:
                self._obey(number, command)
        assert position == len(output)

    def _obey(self, number: str, command: str) -> None:
        match command, number:
            case "H", _:
                row, column = number.split(";")
                assert column == "1"
                self._row = int(row) - 1
            case "J", "2":
                self.rows = [""] * 24
            case "K", "2":
                self.rows[self._row] = ""
            case "h" | "l", mode if mode in self.modes:
                self.modes[mode] = command == "h"
            case _:
                assert command == "m" or number == "?2026", f"{number}{command}"


@attrs.define(eq=False)
class ScreenHarness:
    """A terminal with a board, and a root that answers requests."""

    stage: BoardSession
    screen: LiveScreen
    keys: int
    console: Console
    terminal: Terminal
    asked: list[ControlRequest] = attrs.field(factory=list)
    answer: ControlResponse = attrs.field(factory=RequestDone)
    _read: int = 0

    def type(self, keys: str) -> None:
        os.write(self.keys, keys.encode())

    def text(self) -> str:
        """Lines on the terminal."""
        assert isinstance(self.console.file, io.StringIO)
        output = self.console.file.getvalue()
        self.terminal.feed(output[self._read :])
        self._read = len(output)
        return "\n".join(self.terminal.rows)

    async def sees(self, words: str) -> None:
        """Wait until *words* are on the screen."""
        while words not in self.text():  # noqa: ASYNC110 - the eye does the same
            await trio.sleep(0.01)

    async def serve(self, stream: trio.SocketStream) -> None:
        """Receive one request as the root, and answer it."""
        frame = await read_frame(stream)
        assert frame is not None
        self.asked.append(request_decoder.decode(frame))
        await write_frame(stream, msgspec.json.encode(self.answer))


@pytest.fixture
def harness(stage: BoardSession) -> Iterator[ScreenHarness]:
    master, slave = os.openpty()
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24, highlight=False, markup=False)
    stage.change("main", "running")
    stage.change("a", "running")
    stage.ask("permission-1", "a", "make test")
    path = Path(os.ttyname(slave))
    with open_poller(stage.session) as poller, open_keyboard(path) as keyboard:
        steering = BoardController(poller.board)
        screen = LiveScreen(poller=poller, keyboard=keyboard, console=console, clock=Clock(), controller=steering)
        made = ScreenHarness(stage, screen, master, console, Terminal())
        yield made
    os.close(slave)
    if made.keys >= 0:
        os.close(made.keys)


@asynccontextmanager
async def open_board(harness: ScreenHarness) -> AsyncIterator[None]:
    """Show the board until the user leaves and the block ends."""
    with trio.fail_after(60), open_root_record(harness.stage.session, Clock()) as root:
        async with open_listener(control_address(root)) as door, trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, harness.serve, [door])
            async with trio.open_nursery() as board:
                board.start_soon(harness.screen.run)
                yield
            nursery.cancel_scope.cancel()
    harness.text()
    assert harness.terminal.modes == FOUND


async def test_a_key_answers_an_approval_over_the_control_socket(harness: ScreenHarness) -> None:
    async with open_board(harness):
        await harness.sees("? a  permission")
        harness.type("a")
        await harness.sees("a again: approve Bash make test")
        assert harness.asked == []
        harness.type("a")
        await harness.sees("approved")
        harness.stage.decide("permission-1", "a")
        await harness.sees("permission-1 was approved by you")
        assert "APPROVALS" not in harness.text()
        harness.type("q")
    assert harness.asked == [DecideApproval(id="permission-1", approve=True)]


async def test_a_request_before_leaving_is_carried_out(harness: ScreenHarness) -> None:
    async with open_board(harness):
        harness.type("\x1b[B\x1b[B\x1b[Bsyq")
    assert harness.asked == [StopAgent(name="a")]


async def test_details_of_the_chosen_line_are_shown(harness: ScreenHarness) -> None:
    async with open_board(harness):
        harness.type("j\r")
        await harness.sees("permission of a (permission-1): you decide")
        assert "AGENT" not in harness.text()
        harness.console.size = ConsoleDimensions(80, 4)
        os.kill(os.getpid(), signal.SIGWINCH)
        await harness.sees("more lines")
        harness.type("\x1b[6~")
        await harness.sees("command:")
        harness.console.size = ConsoleDimensions(80, 24)
        harness.type("?")
        await harness.sees("AGENT")
        harness.type("?")
        await harness.sees("choose an approval or an agent")
        harness.type("q")


async def test_a_closed_terminal_ends_the_board(harness: ScreenHarness) -> None:
    async with open_board(harness):
        await harness.sees("AGENT")
        os.close(harness.keys)
        harness.keys = -1


async def test_a_request_without_a_root_is_refused(harness: ScreenHarness) -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(harness.screen.run)
            harness.type("aa")
            await harness.sees("the session is not running")
            harness.type("q")


async def test_a_refusal_of_the_root_is_shown(harness: ScreenHarness) -> None:
    harness.answer = RunFailed(reason="permission-1 is not open \x1b[2J any more", is_for_user=True)
    async with open_board(harness):
        harness.type("aa")
        await harness.sees("permission-1 is not open any more")
        harness.type("q")

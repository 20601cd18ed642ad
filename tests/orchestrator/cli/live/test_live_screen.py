"""Live screen with a real keyboard, a real control socket and growing files."""

import io
import os
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
from tests.orchestrator.cli.live.terminal_emulator import Terminal

pytestmark = pytest.mark.slow


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
        """Press keys."""
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
def room(stage: BoardSession) -> Iterator[ScreenHarness]:
    master, slave = os.openpty()
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24, highlight=False, markup=False)
    stage.change("main", "running")
    stage.change("a", "running")
    stage.ask("permission-1", "a", "make test")
    path = Path(os.ttyname(slave))
    with stage.open_poller() as lookout, open_keyboard(path) as keyboard:
        steering = BoardController(lookout.board)
        screen = LiveScreen(poller=lookout, keyboard=keyboard, console=console, clock=Clock(), controller=steering)
        made = ScreenHarness(stage, screen, master, console, Terminal())
        yield made
    os.close(slave)
    if made.keys >= 0:
        os.close(made.keys)


@asynccontextmanager
async def open_board(room: ScreenHarness) -> AsyncIterator[None]:
    """Show the board until the user leaves and the block ends."""
    with trio.fail_after(60), open_root_record(room.stage.session, Clock()) as root:
        async with open_listener(control_address(root)) as door, trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, room.serve, [door])
            async with trio.open_nursery() as board:
                board.start_soon(room.screen.run)
                yield
            nursery.cancel_scope.cancel()
    room.text()
    assert room.terminal.is_as_found


async def test_a_key_answers_an_approval_over_the_control_socket(room: ScreenHarness) -> None:
    async with open_board(room):
        await room.sees("? a  permission")
        room.type("a")
        await room.sees("a again: approve Bash make test")
        assert room.asked == []
        room.type("a")
        await room.sees("approved")
        room.stage.decide("permission-1", "a")
        await room.sees("permission-1 is approved by you")
        assert "APPROVALS" not in room.text()
        room.type("q")
    assert room.asked == [DecideApproval(id="permission-1", approve=True)]


async def test_a_refusal_of_the_root_is_shown(room: ScreenHarness) -> None:
    room.answer = RunFailed(reason="permission-1 is not open \x1b[2J any more", is_for_user=True)
    async with open_board(room):
        room.type("aa")
        await room.sees("permission-1 is no longer open")
        room.type("q")


async def test_a_request_before_leaving_is_carried_out(room: ScreenHarness) -> None:
    async with open_board(room):
        room.type("\x1b[B\x1b[B\x1b[Bsyq")
    assert room.asked == [StopAgent(name="a")]


async def test_details_of_the_chosen_line_are_shown(room: ScreenHarness) -> None:
    async with open_board(room):
        room.type("j\r")
        await room.sees("permission of a (permission-1): you decide")
        assert "AGENT" not in room.text()
        room.console.size = ConsoleDimensions(80, 4)
        os.kill(os.getpid(), signal.SIGWINCH)
        await room.sees("more lines")
        room.type("\x1b[6~")
        await room.sees("command:")
        room.console.size = ConsoleDimensions(80, 24)
        room.type("?")
        await room.sees("AGENT")
        room.type("?")
        await room.sees("choose an approval or an agent")
        room.type("q")


async def test_a_resize_redraws_immediately(room: ScreenHarness) -> None:
    async with open_board(room):
        await room.sees("up/down choose   enter look")
        room.console.size = ConsoleDimensions(50, 10)
        os.kill(os.getpid(), signal.SIGWINCH)
        await room.sees("a approve  r reject  s stop  q leave  ? help")
        room.type("q")


async def test_a_closed_terminal_ends_the_board(room: ScreenHarness) -> None:
    async with open_board(room):
        await room.sees("AGENT")
        os.close(room.keys)
        room.keys = -1


async def test_a_request_without_a_root_is_refused(room: ScreenHarness) -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(room.screen.run)
            room.type("aa")
            await room.sees("the session is not running")
            room.type("q")

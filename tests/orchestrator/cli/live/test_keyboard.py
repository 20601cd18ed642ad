"""Single keys of a real pseudo-terminal, whose settings are restored."""

import os
import termios
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from coterie.orchestrator.cli.live.keyboard import Keyboard, has_keyboard, open_keyboard


@attrs.define(eq=False)
class PseudoTerminal:
    """A pseudo-terminal with a user."""

    master: int
    slave: int

    @property
    def path(self) -> Path:
        """Path of the terminal."""
        return Path(os.ttyname(self.slave))

    def type(self, keys: bytes) -> None:
        """Press keys."""
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

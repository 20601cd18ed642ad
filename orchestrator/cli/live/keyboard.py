"""Reader of single keys from the terminal, without echo and without Enter; restores the terminal's mode at the end."""

import codecs
import contextlib
import os
import re
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.orchestrator.cli.output import sanitize

TERMINAL = Path("/dev/tty")
SPLIT = 0.05
"""Seconds to wait for the remaining bytes of an escape sequence, which a key such as `up` sends."""
_CHUNK = 4096
_DISABLED = b"\0"

PASTED = "pasted "
"""Prefix of an item in the list of keys that is pasted text; the text follows the prefix."""
LONGEST_PASTE = 65_536
"""Maximum characters stored of an unfinished paste; beyond it, the characters received so far are discarded."""
_BEGIN, _END = "\x1b[200~", "\x1b[201~"
_KEY = re.compile(r"\x1b\[200~.*?\x1b\[201~|\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|\x1b[^\x1b\[O]|.", re.DOTALL)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
_NAMES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x15": "clear",
}


def parse_keys(typed: str) -> list[str]:
    """Split *typed* into keys: characters, names such as `up`, and pastes. Unknown escape sequences are dropped."""
    keys = (_name(found) for found in _KEY.findall(typed))
    return [key for key in keys if key.isprintable()]


def _name(found: str) -> str:
    if found.startswith(_BEGIN):
        return PASTED + " ".join(sanitize(found[len(_BEGIN) : -len(_END)]).split())
    return _NAMES.get(found, found)


@attrs.define(eq=False)
class Keyboard:
    """Open terminal from which single keys are read, without echo and without waiting for Enter."""

    _descriptor: int
    _found: list[Any]
    """Terminal settings from before the change by `enter_raw_mode`, which `restore_mode` sets again."""
    _decoder: codecs.IncrementalDecoder = attrs.field(
        factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"), init=False
    )

    _pasting: str = attrs.field(default="", init=False)
    """Part of a paste that has been read so far; empty if no paste is incomplete."""

    async def read(self) -> list[str]:
        """Wait for input; return its keys, or `gone` if the terminal was closed. Cancellation may lose a key."""
        await trio.lowlevel.wait_readable(self._descriptor)
        if not (typed := self._take()):
            return ["gone"]
        with trio.move_on_after(SPLIT):
            while _UNFINISHED.search(typed):
                await trio.lowlevel.wait_readable(self._descriptor)
                if not (more := self._take()):
                    break  # closed: the next call returns `gone`
                typed += more
        return parse_keys(self._hold_back(typed))

    def _hold_back(self, typed: str) -> str:
        """Return *typed* without an incomplete paste at its end, which is stored and put before the next input."""
        typed, self._pasting = self._pasting + typed, ""
        if (begun := typed.rfind(_BEGIN)) > typed.rfind(_END):
            typed, self._pasting = typed[:begun], typed[begun:]
        if len(self._pasting) > LONGEST_PASTE:
            self._pasting = _BEGIN
        return typed

    def enter_raw_mode(self) -> None:
        """Make the terminal return single keys without echo. Ctrl-C still interrupts; Ctrl-Z is disabled."""
        with contextlib.suppress(termios.error):  # closed, which `read` reports
            tty.setcbreak(self._descriptor, termios.TCSAFLUSH)
            settings = termios.tcgetattr(self._descriptor)
            # A stopped process would leave the board on the screen of the shell.
            settings[tty.CC][termios.VSUSP] = _DISABLED
            termios.tcsetattr(self._descriptor, termios.TCSANOW, settings)

    def restore_mode(self) -> None:
        """Restore the terminal settings from before `enter_raw_mode`; do nothing if the terminal was closed."""
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._found)

    def _take(self) -> str:
        """Return the available input, or a NUL character if there is none; empty if the terminal was closed."""
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return "\0"  # another process has read it
        except OSError:  # Linux reports a closed terminal this way
            return ""
        return self._decoder.decode(data) or ("\0" if data else "")


def has_keyboard(path: Path = TERMINAL) -> bool:
    """True if the terminal *path*, by default that of this process, can be opened for reading keys."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


@contextmanager
def open_keyboard(path: Path = TERMINAL) -> Iterator[Keyboard]:
    """Yield a reader of single keys from terminal *path*; restore its mode after the block. Raises `OSError`."""
    # A new descriptor, so that non-blocking mode does not affect standard input.
    descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        keyboard = Keyboard(descriptor, _settings(descriptor))
        keyboard.enter_raw_mode()
        try:
            yield keyboard
        finally:
            keyboard.restore_mode()
    finally:
        os.close(descriptor)


def _settings(descriptor: int) -> list[Any]:
    try:
        return termios.tcgetattr(descriptor)
    except termios.error as exc:
        raise OSError(*exc.args) from exc

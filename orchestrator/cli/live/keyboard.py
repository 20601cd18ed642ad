"""Single keys of a terminal in raw mode; the terminal mode is always restored."""

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
"""Seconds in which the rest of a key that begins with an escape comes, if there is one."""
_CHUNK = 4096
_DISABLED = b"\0"

PASTED = "pasted "
"""How a key begins that is no key: what follows was pasted, all at once."""
LONGEST_PASTE = 65_536
"""Characters; what is longer is forgotten."""
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
    """The keys in *typed*: characters as they are, some others by name; what has no name is left out."""
    keys = (_name(found) for found in _KEY.findall(typed))
    return [key for key in keys if key.isprintable()]


def _name(found: str) -> str:
    if found.startswith(_BEGIN):
        return PASTED + " ".join(sanitize(found[len(_BEGIN) : -len(_END)]).split())
    return _NAMES.get(found, found)


@attrs.define(eq=False)
class Keyboard:
    """A terminal that gives keys as they are pressed, and shows none of them."""

    _descriptor: int
    _found: list[Any]
    """Its settings before."""
    _decoder: codecs.IncrementalDecoder = attrs.field(
        factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"), init=False
    )

    _pasting: str = attrs.field(default="", init=False)
    """What has come of a paste whose end has not."""

    async def read(self) -> list[str]:
        """The keys that were pressed; `gone` when the terminal is. Cancellation may lose an escape."""
        await trio.lowlevel.wait_readable(self._descriptor)
        if not (typed := self._take()):
            return ["gone"]
        with trio.move_on_after(SPLIT):
            while _UNFINISHED.search(typed):
                await trio.lowlevel.wait_readable(self._descriptor)
                if not (more := self._take()):
                    break  # the next call tells
                typed += more
        return parse_keys(self._hold_back(typed))

    def _hold_back(self, typed: str) -> str:
        """What can be read now: not a paste that goes on."""
        typed, self._pasting = self._pasting + typed, ""
        if (begun := typed.rfind(_BEGIN)) > typed.rfind(_END):
            typed, self._pasting = typed[:begun], typed[begun:]
        if len(self._pasting) > LONGEST_PASTE:
            self._pasting = _BEGIN
        return typed

    def enter_raw_mode(self) -> None:
        """Have the terminal give single keys; Ctrl-C still interrupts, and Ctrl-Z does nothing."""
        with contextlib.suppress(termios.error):  # it is gone, which reading tells
            tty.setcbreak(self._descriptor, termios.TCSAFLUSH)
            settings = termios.tcgetattr(self._descriptor)
            # Stopped, the process would leave its drawing on the screen of the shell.
            settings[tty.CC][termios.VSUSP] = _DISABLED
            termios.tcsetattr(self._descriptor, termios.TCSANOW, settings)

    def restore_mode(self) -> None:
        """Leave the terminal as it was found."""
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._found)

    def _take(self) -> str:
        """What was typed; nothing when the terminal is gone."""
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return "\0"  # another has read it
        except OSError:  # how Linux says that nobody has the other end open
            return ""
        return self._decoder.decode(data) or ("\0" if data else "")


def has_keyboard(path: Path = TERMINAL) -> bool:
    """Whether this process has a terminal whose keys it can read."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


@contextmanager
def open_keyboard(path: Path = TERMINAL) -> Iterator[Keyboard]:
    """The keys of the terminal at *path* until the block ends; then it is as it was found. Raises `OSError`."""
    # Opened anew, so that reading without waiting is a matter of this descriptor and not of standard input.
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

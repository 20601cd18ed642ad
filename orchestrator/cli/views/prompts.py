"""Permission prompts: asks the user at the terminal if a tool call of an agent may run."""

import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.permissions.types import AllowForSession, AllowOnce, Answer, DenyCall, Question
from coterie.orchestrator.cli.output import escape_invisible
from coterie.orchestrator.cli.views.view import View
from coterie.session_directory import MAIN

TERMINAL = Path("/dev/tty")
DETAIL_LINES = 40
"""Maximum number of lines that a prompt shows of each argument of the tool call."""
_LINE_BYTES = 4096


@attrs.frozen
class TerminalPrompter:
    """Prompter for permissions on the terminal `/dev/tty`, so that it works even if standard streams are redirected."""

    _view: View
    _path: Path = TERMINAL

    async def ask(self, question: Question) -> Answer:
        """Pause the view, prompt for the tool call of *question*, and wait for a key: y (once), s (session) or n (no).

        After n the user can type a reason. Keys typed before the prompt was shown are discarded. Cancellation, such as
        by Ctrl-C, restores the terminal settings. If the terminal is closed or unusable, the call is denied.
        """
        with self._view.paused():
            try:
                with _open_terminal(self._path) as terminal:
                    return await terminal.ask(question)
            except OSError as exc:
                return DenyCall(f"The user could not be asked: the terminal {self._path} is unusable: {exc.strerror}.")


@attrs.frozen
class _Terminal:
    descriptor: int
    settings: list[Any]
    """Settings of the terminal before the prompt, as `termios.tcgetattr` returns them, to restore them."""

    async def ask(self, question: Question) -> Answer:
        self.write(_question_text(question))
        while True:
            typed = await self._read()
            # A key of several bytes, such as an arrow, matches no answer.
            match typed.strip().lower() or typed:
                case b"y":
                    self.write("yes, once\n\n")
                    return AllowOnce()
                case b"s" if question.rules:
                    self.write("yes, for this session\n\n")
                    return AllowForSession()
                case b"n":
                    self.write("no\nWhat should the agent do instead? (Enter for nothing) ")
                    return DenyCall(await self._read_line())
                case b"":
                    return DenyCall("The user's terminal was closed.")

    def write(self, text: str) -> None:
        os.write(self.descriptor, text.encode(errors="replace"))

    async def _read_line(self) -> str:
        # The original settings provide line editing.
        termios.tcsetattr(self.descriptor, termios.TCSADRAIN, self.settings)
        line = await self._read()
        self.write("\n")
        return line.decode(errors="replace").strip()

    async def _read(self) -> bytes:
        await trio.lowlevel.wait_readable(self.descriptor)
        return os.read(self.descriptor, _LINE_BYTES)


@contextmanager
def _open_terminal(path: Path) -> Iterator[_Terminal]:
    """Open the terminal *path*, which reads single keys without Enter until the block ends. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        settings = termios.tcgetattr(descriptor)
        tty.setcbreak(descriptor, termios.TCSAFLUSH)
        try:
            yield _Terminal(descriptor, settings)
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, settings)
    except termios.error as exc:
        raise OSError(*exc.args) from exc
    finally:
        os.close(descriptor)


def _question_text(question: Question) -> str:
    subject = _lines(question.subject, "    ") if question.subject else ""
    subject += "".join(
        f"    {escape_invisible(name)}:\n{_lines(text, '      ')}" for name, text in question.details.items()
    )
    agent = "" if question.agent in ("", MAIN) else f"{escape_invisible(question.agent)}: "
    rules = ", ".join(question.rules)
    session = f"   s  for this session: {escape_invisible(rules)}\n" if rules else ""
    return (
        f"\n{agent}{escape_invisible(question.tool)} needs your permission: "
        f"{escape_invisible(question.reason)}\n{subject}"
        f"   y  yes, once\n{session}   n  no\n"
    )


def _lines(text: str, margin: str) -> str:
    lines = escape_invisible(text).split("\n")
    more = len(lines) - DETAIL_LINES
    shown = [*lines[:DETAIL_LINES], f"... {more} more lines"] if more > 1 else lines
    return "".join(f"{margin}{line}\n" for line in shown)

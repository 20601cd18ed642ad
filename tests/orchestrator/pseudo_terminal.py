"""Screen emulator, and a program under a pseudo-terminal."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

_TOKEN = re.compile(r"\x1b\[\??([0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


def screen(output: str) -> list[str]:
    """Lines on a terminal with endless history after *output*; fails on a sequence that no view may write."""
    lines, row, column = [""], 0, 0
    position = 0
    for token in _TOKEN.finditer(output):
        assert token.start() == position, f"what is this: {output[position : position + 20]!r}"
        position = token.end()
        number, command, control, text = token.groups()
        if control == "\r":
            column = 0
        elif control == "\n":
            row, column = row + 1, 0
            lines += [""] * (row - len(lines) + 1)
        elif command == "A":
            row = max(row - int(number or 1), 0)
        elif command == "K":
            lines[row] = ""
        elif text:
            lines[row] = lines[row].ljust(column)[:column] + text + lines[row][column + len(text) :]
            column += len(text)
        else:
            assert command in ("m", "h", "l"), token.group()
    assert position == len(output)
    return lines


@attrs.define(eq=False)
class Program:
    """A process under a pseudo-terminal."""

    process: subprocess.Popen[bytes]
    _master: int
    output: str = ""

    def read_until(self, text: str) -> None:
        """Read the output until it contains *text*."""
        while text not in self.output:
            chunk = self._read()
            assert chunk, f"it ended without {text!r}: {self.output}"
            self.output += chunk

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait(self) -> int:
        """Read the rest of the output; return the exit code."""
        while chunk := self._read():
            self.output += chunk
        return self.process.wait(20)

    def _read(self) -> str:
        try:
            return os.read(self._master, 65_536).decode(errors="replace")
        except OSError:  # Linux reports a closed other end this way
            return ""


@contextmanager
def open_program(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Iterator[Program]:
    """Run *command* with a pseudo-terminal as its controlling terminal and standard streams."""
    master, slave = os.openpty()
    with subprocess.Popen(
        command,
        cwd=cwd,
        env={**env, "TERM": "xterm"},
        preexec_fn=lambda: os.login_tty(slave),  # noqa: PLW1509 - one thread
    ) as process:
        os.close(slave)
        try:
            yield Program(process, master)
        finally:
            process.kill()
            os.close(master)

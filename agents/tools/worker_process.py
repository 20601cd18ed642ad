"""Worker processes that tools can kill, the environment variables of commands, and a collector of bounded output."""

import codecs
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs
import trio

from coterie.agents.errors import ToolFailed

SECRET_PREFIX = "ANTHROPIC_"  # noqa: S105 - a prefix of variable names, not a secret
SECRETS = frozenset({"COTERIE_CONTROL_TOKEN"})


async def run_worker(script: str, request: bytes, *, work: str = "The search") -> bytes:
    """Run *script* in a worker process with *request* as standard input, and return its standard output.

    *script* is a path below `agents/tools` and can import only the standard library. A process is used because a slow
    search or parser cannot be interrupted in a thread; cancellation kills the process. Raises `ToolFailed`, with *work*
    as the subject of the message, if the script fails.
    """
    # Isolated: otherwise `import glob` would find the module glob in the directory of the script.
    ended = await trio.run_process(
        [sys.executable, "-I", "-S", "-W", "ignore", str(Path(__file__).parent / script)],
        stdin=request,
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    if ended.returncode:
        error = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ToolFailed(
            f"{work} failed. Call the tool again with less data, such as fewer files or pages. "
            f"The worker process ended with exit status {ended.returncode}: {error or 'the process was killed'}"
        )
    return ended.stdout


def command_environment(additional: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of this process and *additional*, without `ANTHROPIC_*` and `COTERIE_CONTROL_TOKEN`."""
    variables = {**os.environ, **additional}
    secrets = {name for name in variables if name.startswith(SECRET_PREFIX)} | SECRETS
    return {name: value for name, value in variables.items() if name not in secrets}


@attrs.define(eq=False)
class BoundedOutput:
    """Collector of command output in bounded memory: stores the beginning and the end of the text, drops the middle."""

    half: int
    """Number of characters to store from the beginning of the text; the same number is stored from its end."""
    _head: io.StringIO = attrs.field(factory=io.StringIO, init=False)
    _tail: io.StringIO = attrs.field(factory=io.StringIO, init=False)
    _left_out: int = attrs.field(default=0, init=False)
    _decoder: codecs.IncrementalDecoder = attrs.field(
        factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"), init=False
    )

    def add(self, chunk: bytes | bytearray) -> None:
        """Add the next bytes of the output. They may end inside a character; bytes that are not UTF-8 are replaced."""
        self._append(self._decoder.decode(chunk))

    def finish(self) -> str:
        """Return the stored text, with a note in place of dropped text. Call this once, after the last `add`."""
        self._append(self._decoder.decode(b"", final=True))
        self._shorten_tail()
        note = f"\n[... {self._left_out:,} characters left out ...]\n" if self._left_out else ""
        return f"{self._head.getvalue()}{note}{self._tail.getvalue()}"

    def _append(self, text: str) -> None:
        room = self.half - self._head.tell()
        self._head.write(text[:room])
        self._tail.write(text[room:])
        # Shorten only when the tail is twice too long, so that not every added line copies the tail.
        if self._tail.tell() > 2 * self.half:
            self._shorten_tail()

    def _shorten_tail(self) -> None:
        excess = self._tail.tell() - self.half
        if excess > 0:
            text = self._tail.getvalue()[excess:]
            self._tail = io.StringIO()
            self._tail.write(text)
            self._left_out += excess

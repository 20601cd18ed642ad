"""Worker processes for work that cannot be interrupted: their environment and bounded output."""

import codecs
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs
import trio

from coterie.agents.errors import ToolFailed


async def run_worker(script: Path, order: bytes, *, work: str = "The search") -> bytes:
    """Give *order* to *script*, which has nothing but the standard library, and return its answer.

    When cancelled, the process is killed. Raises `ToolFailed`, which says what *work* it was, if it does not come to an
    answer.
    """
    # Isolated, or the modules beside the script, one of which is called glob, would be found first.
    ended = await trio.run_process(
        [sys.executable, "-I", "-S", "-W", "ignore", str(script)],
        stdin=order,
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    if ended.returncode:
        last_words = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ToolFailed(f"{work} ended early, with status {ended.returncode}: {last_words or 'it was killed'}")
    return ended.stdout


SECRET_PREFIX = "ANTHROPIC_"  # noqa: S105 - how names begin, not a secret
SECRETS = frozenset({"COTERIE_CONTROL_TOKEN"})


def command_environment(besides: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program: everything but the keys to the model and to the session, and *besides*."""
    told = {**os.environ, **besides}
    return {name: value for name, value in told.items() if not name.startswith(SECRET_PREFIX) and name not in SECRETS}


@attrs.define(eq=False)
class BoundedOutput:
    """Collects bytes as text and forgets the middle; bytes that are not UTF-8 are replaced."""

    half: int
    """Characters that are kept at the beginning, and again at the end."""
    _head: io.StringIO = attrs.field(factory=io.StringIO, init=False)
    _tail: io.StringIO = attrs.field(factory=io.StringIO, init=False)
    _left_out: int = attrs.field(default=0, init=False)
    _decoder: codecs.IncrementalDecoder = attrs.field(
        factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"), init=False
    )

    def add(self, chunk: bytes | bytearray) -> None:
        """Take the next bytes; a character may be spread over several chunks."""
        self._append(self._decoder.decode(chunk))

    def finish(self) -> str:
        """All that is kept, with a note where something is missing. Nothing can be added afterwards."""
        self._append(self._decoder.decode(b"", final=True))
        self._shorten_tail()
        note = f"\n[... {self._left_out:,} characters left out ...]\n" if self._left_out else ""
        return f"{self._head.getvalue()}{note}{self._tail.getvalue()}"

    def _append(self, text: str) -> None:
        room = self.half - self._head.tell()
        self._head.write(text[:room])
        self._tail.write(text[room:])
        # Only when it is twice too long: a copy for every line of a chatty command would take forever.
        if self._tail.tell() > 2 * self.half:
            self._shorten_tail()

    def _shorten_tail(self) -> None:
        excess = self._tail.tell() - self.half
        if excess > 0:
            text = self._tail.getvalue()[excess:]
            self._tail = io.StringIO()
            self._tail.write(text)
            self._left_out += excess

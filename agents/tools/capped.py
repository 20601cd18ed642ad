"""Output of any length in bounded memory: its beginning, its end, and how much stood between."""

import codecs
import io

import attrs


@attrs.define(eq=False)
class CappedText:
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

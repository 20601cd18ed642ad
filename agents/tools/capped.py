"""Output of any length in bounded memory: its beginning, its end, and how much stood between."""

import codecs

import attrs


@attrs.define(eq=False)
class CappedText:
    """Collects bytes as text and forgets the middle; bytes that are not UTF-8 are replaced."""

    half: int
    """Characters that are kept at the beginning, and again at the end."""
    _head: str = ""
    _tail: str = ""
    _left_out: int = 0
    _decoder: codecs.IncrementalDecoder = attrs.field(
        factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"), init=False
    )

    def add(self, chunk: bytes | bytearray) -> None:
        """Take the next bytes; a character may be spread over several chunks."""
        self._append(self._decoder.decode(chunk))

    def finish(self) -> str:
        """All that is kept, with a note where something is missing. Nothing can be added afterwards."""
        self._append(self._decoder.decode(b"", final=True))
        note = f"\n[... {self._left_out:,} characters left out ...]\n" if self._left_out else ""
        return f"{self._head}{note}{self._tail}"

    def _append(self, text: str) -> None:
        room = self.half - len(self._head)
        self._head += text[:room]
        tail = self._tail + text[room:]
        excess = max(0, len(tail) - self.half)
        self._left_out += excess
        self._tail = tail[excess:]

"""Segment log: append-only store of the segments (blocks) of a conversation, with their bytes joined to chunks."""

from collections.abc import Iterable, Mapping
from typing import Self

import attrs

from coterie.agents.loop.conversation.segment import Segment

CHUNK = 128 * 1024
"""Number of bytes after the last chunk at which these bytes are joined to a new chunk."""


@attrs.frozen
class Chunk:
    """Joined request bytes of consecutive segments (blocks), so that a request needs few writes."""

    data: bytes
    end: int
    """Number of segments from the start of the log to the end of this chunk."""
    rank: int
    """Level of merging, from 0: two neighbouring chunks of one rank, except the first chunk, become one of the next."""


@attrs.define(eq=False)
class SegmentLog:
    """Append-only list of segments (blocks) that several conversations share; each uses the first ones, up to a length.

    A conversation of n bytes has at most about log n chunks, and each byte is copied about log n times while chunks
    merge. So a request costs few writes and no copy of earlier bytes.
    """

    segments: list[Segment] = attrs.field(factory=list)
    _pieces: list[bytes] = attrs.field(factory=list)
    """Two entries for each segment: the JSON before its block (its glue), and the bytes of the block."""
    _chunks: list[Chunk] = attrs.field(factory=list)
    _loose: int = 0
    """Number of bytes after the last chunk, which are not joined to a chunk yet."""

    def extend(self, added: Iterable[Segment]) -> None:
        """Append the segments *added*, and join the bytes at the end to a chunk whenever they reach `CHUNK`."""
        for segment in added:
            self.segments.append(segment)
            self._pieces += (segment.glue, segment.data)
            self._loose += len(segment.glue) + len(segment.data)
            if self._loose >= CHUNK:
                self._seal()

    def cut(self, length: int) -> Self:
        """Return a new log with the first *length* segments; it copies the lists, but shares the bytes."""
        chunks = [chunk for chunk in self._chunks if chunk.end <= length]
        pieces = self._pieces[: 2 * length]
        loose = sum(map(len, pieces[2 * chunks[-1].end if chunks else 0 :]))
        return type(self)(self.segments[:length], pieces, chunks, loose)

    def chunks(self, length: int, replaced: Mapping[int, bytes]) -> list[bytes]:
        """Return the bytes of the first *length* segments in chunks; *replaced*: index -> bytes in place of a block."""
        found, start = [], 0
        for chunk in self._chunks:
            if chunk.end > length:
                break
            is_whole = not any(start <= index < chunk.end for index in replaced)
            found.append(chunk.data if is_whole else self._join(start, chunk.end, replaced))
            start = chunk.end
        found.append(self._join(start, length, replaced))
        return found

    def _seal(self) -> None:
        chunks, end = self._chunks, len(self.segments)
        chunk = Chunk(self._join(chunks[-1].end if chunks else 0, end, {}), end, 0)
        # The first chunk is never merged: it carries markers, so every request joins it again.
        while len(chunks) > 1 and chunks[-1].rank == chunk.rank:
            chunk = Chunk(chunks.pop().data + chunk.data, end, chunk.rank + 1)
        chunks.append(chunk)
        self._loose = 0

    def _join(self, start: int, end: int, replaced: Mapping[int, bytes]) -> bytes:
        pieces = self._pieces[2 * start : 2 * end]
        for index, data in replaced.items():
            if start <= index < end:
                pieces[2 * (index - start) + 1] = data
        return b"".join(pieces)

"""Segment log behind prefixes: segments, and their bytes joined in chunks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import attrs

from coterie.agents.loop.conversation.segment import Segment

CHUNK = 128 * 1024
"""Bytes after which loose pieces are joined."""


@attrs.frozen
class Chunk:
    """The bytes of some segments in one piece."""

    data: bytes
    end: int
    """How many segments of the log end with it."""
    rank: int
    """How often it was merged; two neighbours of one rank become one chunk of the next."""


@attrs.define(eq=False)
class SegmentLog:
    """Segments in order. It only grows, and is read up to a length, so that many prefixes share it.

    A history of n bytes is at most about log n chunks, and each byte was copied as often while they merged. So a
    request costs few writes, and no copy of what earlier requests sent.
    """

    segments: list[Segment] = attrs.field(factory=list)
    _pieces: list[bytes] = attrs.field(factory=list)
    """Glue and data of each segment in turn."""
    _chunks: list[Chunk] = attrs.field(factory=list)
    _loose: int = 0
    """Bytes behind the last chunk."""

    def extend(self, added: Iterable[Segment]) -> None:
        """Add segments at the end."""
        for segment in added:
            self.segments.append(segment)
            self._pieces += (segment.glue, segment.data)
            self._loose += len(segment.glue) + len(segment.data)
            if self._loose >= CHUNK:
                self._seal()

    def cut(self, length: int) -> Self:
        """A log of its own with the first *length* segments: pointers are copied, bytes are not."""
        chunks = [chunk for chunk in self._chunks if chunk.end <= length]
        pieces = self._pieces[: 2 * length]
        loose = sum(map(len, pieces[2 * chunks[-1].end if chunks else 0 :]))
        return type(self)(self.segments[:length], pieces, chunks, loose)

    def with_segments(self, segments: Sequence[Segment]) -> Self:
        """A log of *segments* that have the same bytes as its own."""
        return attrs.evolve(self.cut(len(segments)), segments=list(segments))

    def chunks(self, length: int, replaced: Mapping[int, bytes]) -> list[bytes]:
        """The bytes of the first *length* segments, with other data for those that *replaced* names."""
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
        # The first chunk stays by itself: markers stand in it, so every request joins it anew.
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

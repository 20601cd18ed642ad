"""How far a mailbox is acknowledged: a position, and what lies beyond it out of order."""

import attrs
import msgspec

from coterie.files import check_record, frame_record

Position = tuple[int, int]
"""The number of a segment, and an offset in it."""

VERSION = 1


@attrs.frozen(kw_only=True)
class Span:
    """A stretch of one segment: a record, or several that follow each other."""

    segment: int
    start: int
    end: int
    newlines: int
    """In it; every record has two, which is how writers count what waits."""


@attrs.frozen(kw_only=True)
class Cursor:
    """What a line of `cursor.json` says."""

    segment: int = 1
    offset: int = 0
    newlines: int = 0
    """In the segment before the offset."""
    done: tuple[Span, ...] = ()
    """Acknowledged beyond the offset, oldest first."""
    taken: Position | None = None
    """How far the last reader had read when it closed the mailbox; None while there is one, or if it was killed."""
    v: int = VERSION

    @property
    def last_known(self) -> int:
        """The last segment of which it says something."""
        begun = self.segment if self.offset else self.segment - 1
        return max(begun, *(span.segment for span in self.done), 0)

    def to_bytes(self) -> bytes:
        """One JSON object on a line, with a checksum."""
        return frame_record(msgspec.json.encode(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Cursor":
        """What `to_bytes` wrote. Raises `ValueError`, whatever *data* is."""
        line = data.strip(b"\n")
        check_record(line)
        cursor = _decoder.decode(line)
        if cursor.segment < 1 or cursor.offset < 0:
            raise ValueError("it stands nowhere")
        if cursor.v != VERSION:
            raise ValueError(f"version {cursor.v}; this program reads {VERSION}")
        return cursor


_decoder = msgspec.json.Decoder(Cursor)


@attrs.define(eq=False)
class Progress:
    """The cursor as it moves. Acknowledgements come in any order; neighbours become one span, so it stays small."""

    _segment: int
    _offset: int
    _newlines: int
    _by_start: dict[Position, Span] = attrs.field(factory=dict)
    _by_end: dict[Position, Span] = attrs.field(factory=dict)
    _over: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    """Segments read to their end -> their size, and the number of the next."""

    @classmethod
    def from_cursor(cls, cursor: Cursor) -> "Progress":
        """Go on where *cursor* stands."""
        progress = cls(cursor.segment, cursor.offset, cursor.newlines)
        for span in cursor.done:
            progress.finish(span)
        return progress

    @property
    def position(self) -> Position:
        """The first byte that is not acknowledged."""
        return self._segment, self._offset

    def cursor(self, taken: Position | None = None) -> Cursor:
        """What to write down now."""
        done = tuple(self._by_start[start] for start in sorted(self._by_start))
        return Cursor(segment=self._segment, offset=self._offset, newlines=self._newlines, done=done, taken=taken)

    def finish(self, span: Span) -> None:
        """*span* is acknowledged; it begins where a record begins, and was not finished before."""
        if (span.segment, span.start) == self.position:
            self._pass(span)
            self._move()
            return
        if before := self._by_end.pop((span.segment, span.start), None):
            del self._by_start[before.segment, before.start]
            span = _join(before, span)
        if after := self._by_start.pop((span.segment, span.end), None):
            del self._by_end[after.segment, after.end]
            span = _join(span, after)
        self._by_start[span.segment, span.start] = span
        self._by_end[span.segment, span.end] = span
        self._move()

    def leave(self, segment: int, size: int, following: int) -> None:
        """*segment* is read to its end at *size*; reading went on at the beginning of the *following* one."""
        self._over[segment] = size, following
        self._move()

    def _move(self) -> None:
        while True:
            if span := self._by_start.pop((self._segment, self._offset), None):
                del self._by_end[span.segment, span.end]
                self._pass(span)
            elif self._over.get(self._segment, (-1, 0))[0] == self._offset:
                self._segment = self._over.pop(self._segment)[1]
                self._offset = self._newlines = 0
            else:
                return

    def _pass(self, span: Span) -> None:
        self._offset = span.end
        self._newlines += span.newlines


def _join(first: Span, second: Span) -> Span:
    return Span(segment=first.segment, start=first.start, end=second.end, newlines=first.newlines + second.newlines)

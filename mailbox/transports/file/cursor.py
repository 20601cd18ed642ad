"""The cursor of a mailbox: acknowledged positions, and the log in which they are kept.

An acknowledgement is one append, which costs a tenth of putting a new file in the place of the old one. That is done
only when the file has grown, so it is always short, and never without a cursor.
"""

import contextlib
import os
import threading
from pathlib import Path

import attrs
import msgspec

from coterie.files import Appender, check_record, frame_record, replace_file

Position = tuple[int, int]
"""The number of a segment, and an offset in it."""

VERSION = 1


@attrs.frozen(kw_only=True)
class AckRange:
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
    done: tuple[AckRange, ...] = ()
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
class AckProgress:
    """The cursor as it moves. Acknowledgements come in any order; neighbours become one span, so it stays small."""

    _segment: int
    _offset: int
    _newlines: int
    _by_start: dict[Position, AckRange] = attrs.field(factory=dict)
    _by_end: dict[Position, AckRange] = attrs.field(factory=dict)
    _over: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    """Segments read to their end -> their size, and the number of the next."""

    @classmethod
    def from_cursor(cls, cursor: Cursor) -> "AckProgress":
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

    def finish(self, span: AckRange) -> None:
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

    def _pass(self, span: AckRange) -> None:
        self._offset = span.end
        self._newlines += span.newlines


def _join(first: AckRange, second: AckRange) -> AckRange:
    return AckRange(segment=first.segment, start=first.start, end=second.end, newlines=first.newlines + second.newlines)


CURSOR_FILE = "cursor.json"
LONGEST = 64 * 1024
"""Bytes at which the file begins again with its last line."""
_MODE = 0o600
_END = 4096
"""Bytes at the end of the file in which its last line is looked for first."""


@attrs.define(eq=False)
class CursorLog:
    """The cursor of the mailbox in a directory, for its one reader."""

    path: Path
    _log: Appender | None = attrs.field(default=None, init=False)
    _size: int = attrs.field(default=0, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    """Whoever closes it may do so while a thread writes: to a descriptor that could be somebody else's by then."""

    @classmethod
    def of(cls, directory: Path) -> "CursorLog":
        """That of the mailbox in *directory*."""
        return cls(directory / CURSOR_FILE)

    def write(self, cursor: Cursor) -> None:
        """Let *cursor* count from now on; a power cut may bring an older one back. Raises `OSError`."""
        line = cursor.to_bytes()
        with self._lock:
            if self._log is None or self._size > LONGEST:
                self._begin(line)
            else:
                # Counted also if it fails: what is torn takes its room.
                self._size += len(line)
                self._log.append(line)

    def close(self) -> None:
        """Give the descriptor back; the next write begins a new file."""
        with self._lock:
            self._close()

    def _begin(self, line: bytes) -> None:
        replace_file(self.path, line, durable=False, mode=_MODE)
        self._close()
        self._log, self._size = Appender.open(self.path), len(line)

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def load_cursor(directory: Path) -> Cursor | None:
    """The cursor of a mailbox; None if it has none, or one that cannot be read.

    Then reading begins at the oldest segment: mail comes again, which the transcript notices. None is lost.
    Raises `OSError`.
    """
    try:
        descriptor = os.open(directory / CURSOR_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        last = _last_in(os.pread(descriptor, _END, max(0, size - _END)))
        return last or _last_in(os.pread(descriptor, size, 0))
    finally:
        os.close(descriptor)


def _last_in(content: bytes) -> Cursor | None:
    for line in reversed(content.split(b"\n")):
        with contextlib.suppress(ValueError):
            return Cursor.from_bytes(line)
    return None

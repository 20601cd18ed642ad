"""The cursor of a mailbox: acknowledged positions, and the log in which they are kept.

An acknowledgement is one append, which costs a tenth of replacing the file. The file is replaced only when it has
grown, so it is always short, and there is always a cursor.
"""

import contextlib
import os
import threading
from pathlib import Path

import attrs
import msgspec

from coterie.files import Appender, check_record, frame_record, replace_file

Position = tuple[int, int]
"""Number of a segment, and an offset in it."""

VERSION = 1


@attrs.frozen(kw_only=True)
class AckRange:
    """Range of one segment: one record, or several adjacent ones."""

    segment: int
    start: int
    end: int
    newlines: int
    """Newlines in the range; every record has two, so writers can count pending messages."""


@attrs.frozen(kw_only=True)
class Cursor:
    """Read position of a mailbox, as one line of `cursor.json`."""

    segment: int = 1
    offset: int = 0
    newlines: int = 0
    """Newlines in the segment before the offset."""
    done: tuple[AckRange, ...] = ()
    """Ranges behind the offset that are acknowledged, oldest first."""
    taken: Position | None = None
    """Position that the last reader had reached when it closed the mailbox; None during reading and after a kill."""
    v: int = VERSION

    @property
    def last_known(self) -> int:
        """The last segment that the cursor refers to."""
        begun = self.segment if self.offset else self.segment - 1
        return max(begun, *(span.segment for span in self.done), 0)

    def to_bytes(self) -> bytes:
        """Encode the cursor as one JSON line with a checksum."""
        return frame_record(msgspec.json.encode(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Cursor":
        """Decode a cursor that `to_bytes` wrote. Raises `ValueError` for any other *data*."""
        line = data.strip(b"\n")
        check_record(line)
        cursor = _decoder.decode(line)
        if cursor.segment < 1 or cursor.offset < 0:
            raise ValueError(f"segment {cursor.segment} is less than 1, or offset {cursor.offset} is negative")
        if cursor.v != VERSION:
            raise ValueError(f"version {cursor.v}; this program reads {VERSION}")
        return cursor


_decoder = msgspec.json.Decoder(Cursor)


@attrs.define(eq=False)
class AckProgress:
    """The cursor during reading. Acknowledgements come in any order; adjacent ranges are joined, so it stays small."""

    _segment: int
    _offset: int
    _newlines: int
    _by_start: dict[Position, AckRange] = attrs.field(factory=dict)
    _by_end: dict[Position, AckRange] = attrs.field(factory=dict)
    _over: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    """Maps segments read to their end to their size and the number of the next segment."""

    @classmethod
    def from_cursor(cls, cursor: Cursor) -> "AckProgress":
        """Return the progress that *cursor* describes."""
        progress = cls(cursor.segment, cursor.offset, cursor.newlines)
        for span in cursor.done:
            progress.finish(span)
        return progress

    @property
    def position(self) -> Position:
        """Position of the first byte that is not acknowledged."""
        return self._segment, self._offset

    def cursor(self, taken: Position | None = None) -> Cursor:
        """Return the cursor to write now."""
        done = tuple(self._by_start[start] for start in sorted(self._by_start))
        return Cursor(segment=self._segment, offset=self._offset, newlines=self._newlines, done=done, taken=taken)

    def finish(self, span: AckRange) -> None:
        """Add the acknowledged *span*, which starts at a record and was not added before."""
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
        """Mark *segment* as read to its end at *size*; reading continued at the start of the *following* one."""
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
"""Size in bytes at which the file is replaced by one with only the last line."""
_MODE = 0o600
_END = 4096
"""Bytes at the end of the file in which to search for the last line first."""


@attrs.define(eq=False)
class CursorLog:
    """Cursor file of the mailbox in a directory, for its one reader."""

    path: Path
    _log: Appender | None = attrs.field(default=None, init=False)
    _size: int = attrs.field(default=0, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    """Held by writes and `close`: closing during a write in a thread could let the write hit a reused descriptor."""

    @classmethod
    def of(cls, directory: Path) -> "CursorLog":
        """Return the cursor file of the mailbox in *directory*."""
        return cls(directory / CURSOR_FILE)

    def write(self, cursor: Cursor) -> None:
        """Append *cursor* as the current one; a power cut may restore an older one. Raises `OSError`."""
        line = cursor.to_bytes()
        with self._lock:
            if self._log is None or self._size > LONGEST:
                replace_file(self.path, line, durable=False, mode=_MODE)
                self._close()
                self._log, self._size = Appender.open(self.path), len(line)
            else:
                # Counted even if the write fails, because a torn line takes space too.
                self._size += len(line)
                self._log.append(line)

    def close(self) -> None:
        """Close the descriptor; the next write starts a new file."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def load_cursor(directory: Path) -> Cursor | None:
    """Load the cursor of a mailbox; None if it is missing or unreadable.

    Reading then starts at the oldest segment: no mail is lost, and the transcript detects messages that are delivered
    again. Raises `OSError`.
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

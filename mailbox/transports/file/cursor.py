"""Cursor of a mailbox: the positions of acknowledged messages in the mailbox's log, and the file that stores them.

An acknowledgement appends the new cursor as one line, which costs a tenth of replacing the file. Only a file that has
become too long is replaced by one with the newest line. So the file stays short and always contains a cursor.
"""

import contextlib
import os
import threading
from pathlib import Path

import attrs
import msgspec

from coterie.files import Appender, check_record, frame_record, replace_file

Position = tuple[int, int]
"""Position in a mailbox's log: number of a segment (log file), and byte offset in this file."""

VERSION = 1


@attrs.frozen(kw_only=True)
class AckRange:
    """Byte range of one stored message, or of adjacent ones, in a segment (log file); used for acknowledgements."""

    segment: int
    start: int
    end: int
    newlines: int
    """Number of newlines in the range. A message has two, so writers can compute the number of pending messages."""


@attrs.frozen(kw_only=True)
class Cursor:
    """Acknowledged part of a mailbox's log: all before `offset`, and the ranges `done`; one line of `cursor.json`."""

    segment: int = 1
    offset: int = 0
    newlines: int = 0
    """Number of newlines in the segment before `offset`, from which writers compute the number of pending messages."""
    done: tuple[AckRange, ...] = ()
    """Byte ranges behind `offset` whose messages were acknowledged out of order, oldest first."""
    taken: Position | None = None
    """Position up to which the last reader had read when it closed the mailbox; None while reading and after a kill."""
    v: int = VERSION

    @property
    def last_known(self) -> int:
        """Number of the last segment (log file) known to have existed, or 0; a recreated log continues behind it."""
        begun = self.segment if self.offset else self.segment - 1
        return max(begun, *(span.segment for span in self.done), 0)

    def to_bytes(self) -> bytes:
        """Return the cursor encoded as one line of JSON with a checksum, as stored in `cursor.json`."""
        return frame_record(msgspec.json.encode(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Cursor":
        """Decode a cursor (read position of a mailbox) encoded by `to_bytes`. Raises `ValueError` for other *data*."""
        line = data.strip(b"\n")
        check_record(line)
        cursor = _decoder.decode(line)
        if cursor.segment < 1 or cursor.offset < 0:
            raise ValueError(f"invalid cursor: segment {cursor.segment} (must be >= 1), offset {cursor.offset} (>= 0)")
        if cursor.v != VERSION:
            raise ValueError(f"the cursor has version {cursor.v}, but this program reads only version {VERSION}")
        return cursor


_decoder = msgspec.json.Decoder(Cursor)


@attrs.define(eq=False)
class AckProgress:
    """Acknowledged parts of a mailbox's log while it is read. Messages may be acknowledged in any order."""

    _segment: int
    _offset: int
    _newlines: int
    _by_start: dict[Position, AckRange] = attrs.field(factory=dict)
    _by_end: dict[Position, AckRange] = attrs.field(factory=dict)
    _over: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    """Maps the number of a segment (log file) that was read to its end to its size and the next segment's number."""

    @classmethod
    def from_cursor(cls, cursor: Cursor) -> "AckProgress":
        """Create the progress of a reader that continues at *cursor* and keeps the acknowledged ranges in it."""
        progress = cls(cursor.segment, cursor.offset, cursor.newlines)
        for span in cursor.done:
            progress.finish(span)
        return progress

    @property
    def position(self) -> Position:
        """Segment number and byte offset of the first byte in the log that is not acknowledged."""
        return self._segment, self._offset

    def cursor(self, taken: Position | None = None) -> Cursor:
        """Return the cursor to store. *taken* is the position up to which messages were read, given only at closing."""
        done = tuple(self._by_start[start] for start in sorted(self._by_start))
        return Cursor(segment=self._segment, offset=self._offset, newlines=self._newlines, done=done, taken=taken)

    def finish(self, span: AckRange) -> None:
        """Mark the byte range *span*, which starts with a message and was not marked before, as acknowledged."""
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
        """Record that segment *segment* ends at *size*. Once all is acknowledged, `position` moves to *following*."""
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
"""Size of the cursor file in bytes above which it is replaced by a file with only the newest cursor."""
_MODE = 0o600
_END = 4096
"""Bytes at the end of the cursor file that are searched for its last valid line; if there is none, all are searched."""


@attrs.define(eq=False)
class CursorLog:
    """Writer of a mailbox's cursor file, which stores acknowledged positions; only the mailbox's reader uses it."""

    path: Path
    _log: Appender | None = attrs.field(default=None, init=False)
    _size: int = attrs.field(default=0, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    """Held during writes and `close`, so that no write in a thread uses a descriptor that was closed and reused."""

    @classmethod
    def of(cls, directory: Path) -> "CursorLog":
        """Return a writer for the cursor file of the mailbox in *directory*; the first write opens the file."""
        return cls(directory / CURSOR_FILE)

    def write(self, cursor: Cursor) -> None:
        """Store *cursor* as the newest one, not synced: a power cut may restore an older one. Raises `OSError`."""
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
        """Close the cursor file; a later `write` replaces it by a file with only one cursor."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def load_cursor(directory: Path) -> Cursor | None:
    """Return the newest valid cursor of the mailbox in *directory*; None if the file is missing or has no valid line.

    Without a cursor, reading starts with the oldest message: no mail is lost, and messages that are delivered again
    are recognized by the transcript of the agent. Raises `OSError`.
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

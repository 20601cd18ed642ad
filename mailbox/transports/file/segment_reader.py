"""Reader of one log segment while writers append to it."""

import fcntl
import os
from pathlib import Path

import attrs

from coterie.files import unframe_record
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import EnvelopeCorrupt
from coterie.mailbox.transports.file.cursor import AckRange
from coterie.mailbox.transports.file.fast_stat import fast_fstat
from coterie.mailbox.transports.file.log_segments import is_sealed, segment_path, try_lock, unlock

READ_BYTES = 256 * 1024


@attrs.frozen(kw_only=True)
class LogRecord:
    """What stands between two newlines: a record, or what is left of one."""

    content: bytes
    span: AckRange
    """Where it stands, with the newlines around it."""


@attrs.define(eq=False)
class SegmentReader:
    """A segment from an offset on; `move` goes on behind a line."""

    number: int
    offset: int
    """Where the next line begins."""
    _descriptor: int
    _buffer: bytes = b""
    _base: int = 0
    """Offset of the first byte of the buffer."""
    _stuck_at: int = -1
    """The end of what was read when it held no line."""
    is_sealed: bool = attrs.field(default=False, init=False)
    """Whether nothing was appended any more when the size was last looked at, by `next_record` or `may_have_record`."""

    @classmethod
    def open(cls, directory: Path, number: int, offset: int = 0) -> "SegmentReader":
        """Read a segment that exists. Raises `OSError`."""
        descriptor = os.open(segment_path(directory, number), os.O_RDONLY | os.O_CLOEXEC)
        return cls(number=number, offset=offset, descriptor=descriptor, base=offset)

    def next_record(self) -> LogRecord | None:
        """The line at the offset; None if it is not there yet. Raises `OSError`.

        A line without an end is not there yet as long as somebody may be writing it; if nobody is, it is all that will
        ever come of it, and given as it is.
        """
        while True:
            start = first = self.offset - self._base
            while self._buffer.startswith(b"\n", first):
                first += 1
            end = self._buffer.find(b"\n", first)
            if end >= 0:
                return self._line(start, first, end, end + 1)
            if self._fill():
                continue
            if first >= len(self._buffer) or not self._is_abandoned():
                self._stuck_at = self._end
                return None
            # Whoever began the line is gone: either the rest of it can be read now, or it never will be.
            if not self._fill():
                return self._line(start, first, len(self._buffer), len(self._buffer))

    def move(self, offset: int) -> None:
        """Go on at *offset*, which is the end of a line."""
        self.offset = offset
        if offset >= self._end:
            self._buffer, self._base = b"", offset

    def may_have_record(self) -> bool:
        """Whether `next_record` could give something that it did not give before."""
        is_unread = self.offset < self._end and self._stuck_at != self._end
        return is_unread or self._unread_bytes() > 0

    def is_unfinished(self) -> bool:
        """Whether there is a line without an end, which nobody may be left to finish."""
        return bool(self._buffer[self.offset - self._base :].strip(b"\n"))

    def is_deleted(self) -> bool:
        """Whether the file has no name any more."""
        return fast_fstat(self._descriptor).st_nlink == 0

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)

    @property
    def _end(self) -> int:
        return self._base + len(self._buffer)

    def _is_abandoned(self) -> bool:
        """Whether nobody is appending who began to before this call."""
        if self.is_sealed:
            return True
        if not try_lock(self._descriptor, fcntl.LOCK_EX):
            return False
        unlock(self._descriptor)
        return True

    def _unread_bytes(self) -> int:
        """How many bytes there are behind what was read."""
        status = fast_fstat(self._descriptor)
        self.is_sealed = is_sealed(status)
        return status.st_size - self._end

    def _fill(self) -> bool:
        # Asked for as much as there is: room for more would be made, and given back, for nothing.
        unread = self._unread_bytes()
        read = os.pread(self._descriptor, min(READ_BYTES, unread), self._end) if unread > 0 else b""
        if read:
            self._buffer = self._buffer[self.offset - self._base :] + read
            self._base = self.offset
        return bool(read)

    def _line(self, start: int, first: int, end: int, after: int) -> LogRecord:
        newlines = first - start + after - end
        span = AckRange(segment=self.number, start=self.offset, end=self._base + after, newlines=newlines)
        return LogRecord(content=self._buffer[first:end], span=span)


def parse_record(content: bytes) -> Envelope:
    """The message in a line, with the very bytes that stand there. Raises `EnvelopeCorrupt`."""
    try:
        inner = unframe_record(content)
    except ValueError as exc:
        raise EnvelopeCorrupt(str(exc)) from exc
    return Envelope.from_line(inner)

"""Reader of one segment (log file of a mailbox), to which other processes may be appending messages."""

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
    """One line of a mailbox's log: an encoded message, or a part of one whose write was interrupted."""

    content: bytes
    span: AckRange
    """Byte range of the line in the log, including the newlines before and after it."""


@attrs.define(eq=False)
class SegmentReader:
    """Reads the records (stored messages) of one segment (log file) in order, from a byte offset on."""

    number: int
    offset: int
    """Byte offset in the file of the record to return next."""
    _descriptor: int
    _buffer: bytes = b""
    _base: int = 0
    """Offset in the file of the first byte in `_buffer`."""
    _stuck_at: int = -1
    """File offset up to which bytes were read without a complete record; -1 if there was always one."""
    is_sealed: bool = attrs.field(default=False, init=False)
    """True if the segment was sealed (closed for appends) when the size of its file was last checked."""

    @classmethod
    def open(cls, directory: Path, number: int, offset: int = 0) -> "SegmentReader":
        """Open log file *number* of the mailbox in *directory* for reading from *offset* on. Raises `OSError`."""
        descriptor = os.open(segment_path(directory, number), os.O_RDONLY | os.O_CLOEXEC)
        return cls(number=number, offset=offset, descriptor=descriptor, base=offset)

    def next_record(self) -> LogRecord | None:
        """Return the record (stored message) at `offset` without advancing; None if none is complete. Raises `OSError`.

        An incomplete record is not returned while a writer may still be appending it. If the writer has died, the
        incomplete record is returned, because it will not grow.
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
            # The writer has died: either the rest of the record can be read now, or it will never be written.
            if not self._fill():
                return self._line(start, first, len(self._buffer), len(self._buffer))

    def move(self, offset: int) -> None:
        """Set `offset`, from which the next record is read, to *offset*, which must be the end of a record."""
        self.offset = offset
        if offset >= self._end:
            self._buffer, self._base = b"", offset

    def may_have_record(self) -> bool:
        """True if there are new bytes, so that `next_record` may return a record not returned yet. Raises `OSError`."""
        is_unread = self.offset < self._end and self._stuck_at != self._end
        return is_unread or self._unread_bytes() > 0

    def is_unfinished(self) -> bool:
        """True if the bytes read last are an incomplete record: its writer is still appending it, or has died."""
        return bool(self._buffer[self.offset - self._base :].strip(b"\n"))

    def is_deleted(self) -> bool:
        """True if the segment's file was deleted since it was opened; it can still be read."""
        return fast_fstat(self._descriptor).st_nlink == 0

    def close(self) -> None:
        """Close the segment's file; this object cannot be used afterwards."""
        os.close(self._descriptor)

    @property
    def _end(self) -> int:
        return self._base + len(self._buffer)

    def _is_abandoned(self) -> bool:
        """True if every append that began before this call has ended, so that an incomplete record stays incomplete."""
        if self.is_sealed:
            return True
        if not try_lock(self._descriptor, fcntl.LOCK_EX):
            return False
        unlock(self._descriptor)
        return True

    def _unread_bytes(self) -> int:
        """Return the number of bytes in the file behind those in `_buffer`, and update `is_sealed`."""
        status = fast_fstat(self._descriptor)
        self.is_sealed = is_sealed(status)
        return status.st_size - self._end

    def _fill(self) -> bool:
        # Not more than available: `pread` would allocate a larger buffer and shrink it.
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
    """Decode the message in *content*, a line of the log. Raises `EnvelopeCorrupt` for a wrong checksum or format."""
    try:
        inner = unframe_record(content)
    except ValueError as exc:
        raise EnvelopeCorrupt(str(exc)) from exc
    return Envelope.from_line(inner)

"""Measurement of the backlog (unacknowledged messages) of a file mailbox, by the sizes of its files and its cursor."""

import os
from pathlib import Path

import attrs

from coterie.mailbox.transports.file.cursor import CURSOR_FILE, Cursor, load_cursor
from coterie.mailbox.transports.file.log_segments import segment_path

SMALLEST_RECORD = 256
"""Lower bound for the size of a stored message (record) in bytes.

A backlog smaller than the limit of messages times this size is below that limit, so its messages are not counted.
"""

_READ_BYTES = 1024 * 1024


@attrs.define(eq=False)
class BacklogSize:
    """Measures number and bytes of the unacknowledged messages of a mailbox; incomplete ones may be miscounted."""

    directory: Path
    cursor: Cursor = attrs.field(factory=Cursor, init=False)
    _cursor_file: str = attrs.field(init=False)
    """Path of the file with the mailbox's cursor (read position), as a string so that `refresh` need not build it."""
    _version: tuple[int, int, int] | None = attrs.field(default=None, init=False)
    _sealed: dict[int, int] = attrs.field(factory=dict, init=False)
    """Maps the number of each sealed segment (full log file, which no longer grows) to its size in bytes."""
    _counted: dict[int, tuple[int, int]] = attrs.field(factory=dict, init=False)
    """Maps the number of a segment (log file) to the bytes scanned from its start so far, and the newlines in them."""
    _last: int | None = attrs.field(default=None, init=False)
    """Log file number for which `_before` caches the result of `_bytes_before`; None if the cursor was loaded since."""
    _before: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._cursor_file = str(self.directory / CURSOR_FILE)

    def refresh(self, *, is_forced: bool = False) -> None:
        """Load the mailbox's cursor (read position) from its file if the file has changed, or always if *is_forced*.

        Without a file, the cursor is the start of the log. Raises `OSError`.
        """
        try:
            status = os.stat(self._cursor_file)  # noqa: PTH116 - called for every message, and costs half as much
        except FileNotFoundError:
            self._version, self.cursor, self._last = None, Cursor(), None
            return
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        if is_forced or version != self._version:
            self.cursor = load_cursor(self.directory) or Cursor()
            self._version, self._last = version, None
            for known in (self._sealed, self._counted):
                for number in [number for number in known if number < self.cursor.segment]:
                    del known[number]

    def bytes(self, last: int, size: int) -> int:
        """Return the unacknowledged bytes of a mailbox with last log file *last*, of *size* bytes. Raises `OSError`."""
        return max(0, size + self._bytes_before(last))

    def size_with(self, last: int, waiting: int) -> int:
        """Return the size of log file *last* at which *waiting* bytes are pending in the mailbox. Raises `OSError`."""
        return waiting - self._bytes_before(last)

    def messages(self, last: int, size: int) -> int:
        """Count the unacknowledged messages up to byte *size* of log file *last*; reads new bytes. Raises `OSError`."""
        cursor = self.cursor
        before = sum(self._newlines(number, self._sealed_size(number)) for number in range(cursor.segment, last))
        done = sum(span.newlines for span in cursor.done)
        newlines = before + self._newlines(last, size) - cursor.newlines - done
        return max(0, newlines + 1) // 2

    def _bytes_before(self, last: int) -> int:
        """Return the unacknowledged bytes of the mailbox minus the size of log file *last*; may be negative."""
        if self._last != last:
            cursor = self.cursor
            sealed = sum(self._sealed_size(number) for number in range(cursor.segment, last))
            done = sum(span.end - span.start for span in cursor.done)
            self._last, self._before = last, sealed - cursor.offset - done
        return self._before

    def _sealed_size(self, number: int) -> int:
        if number not in self._sealed:
            try:
                self._sealed[number] = segment_path(self.directory, number).stat().st_size
            except FileNotFoundError:
                return 0  # acknowledged and deleted
        return self._sealed[number]

    def _newlines(self, number: int, size: int) -> int:
        counted, newlines = self._counted.get(number, (0, 0))
        if counted == size:
            return newlines
        try:
            with segment_path(self.directory, number).open("rb", buffering=0) as segment:
                segment.seek(counted)
                while counted < size and (piece := segment.read(min(_READ_BYTES, size - counted))):
                    counted += len(piece)
                    newlines += piece.count(b"\n")
        except FileNotFoundError:
            return 0  # acknowledged and deleted
        self._counted[number] = counted, newlines
        return newlines

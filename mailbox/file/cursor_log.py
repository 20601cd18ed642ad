"""The file of a cursor: a line for each time it was written, of which the last whole one counts.

An acknowledgement is one append, which costs a tenth of putting a new file in the place of the old one. That is done
only when the file has grown, so it is always short, and never without a cursor.
"""

import contextlib
import os
import threading
from pathlib import Path

import attrs

from coterie.files import Appender, replace_file
from coterie.mailbox.file.cursor import Cursor

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

"""One clock for a whole session: wall time plus an offset that a file carries.

Time to live, idle gaps and daily gates are read from this clock and from nothing else, so a test moves
hours by writing one file, and every process that was given the same file moves with it.
"""

import os
import time
from pathlib import Path

import attrs
from filelock import FileLock

from coterie.files import replace_file

CLOCK_FILE_VARIABLE = "COTERIE_CLOCK"
"""Names the offset file; inherited by every process of a session."""

LOCK_TIMEOUT = 10.0


@attrs.define(eq=False)
class Clock:
    """Wall time plus an offset in seconds.

    Without a *file* the offset is this object's alone. With one it is shared: `now` sees a move made by
    any other process at its next call, at the price of one `stat`.
    """

    file: Path | None = None
    _offset: float = 0.0
    _version: tuple[int, int] | None = None

    @classmethod
    def from_environment(cls) -> "Clock":
        """The session's clock: shared if the environment names a file, plain wall time otherwise."""
        path = os.environ.get(CLOCK_FILE_VARIABLE)
        return cls(file=Path(path) if path else None)

    def now(self) -> float:
        """Seconds since the epoch, moved by the offset."""
        return time.time() + self.offset

    @property
    def offset(self) -> float:
        """Seconds this clock is ahead of wall time; negative when it is behind."""
        if self.file is not None:
            self._reload(self.file)
        return self._offset

    def advance(self, seconds: float) -> None:
        """Move the clock; a shared one moves for every process that reads its file.

        Moves made at the same time by several processes add up. Raises `OSError` if the file cannot be replaced, and
        `filelock.Timeout` if another process holds its lock for too long; the clock has then not moved.
        """
        if self.file is None:
            self._offset += seconds
            return
        with FileLock(f"{self.file}.lock", timeout=LOCK_TIMEOUT):
            offset = self.offset + seconds
            replace_file(self.file, f"{offset!r}\n".encode())
        self._offset = offset

    def _reload(self, file: Path) -> None:
        try:
            status = file.stat()
        except FileNotFoundError:
            return
        # Every move replaces the file, so a new inode or time stamp is a new offset.
        version = (status.st_ino, status.st_mtime_ns)
        if version != self._version:
            self._offset = float(file.read_text())
            self._version = version

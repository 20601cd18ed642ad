"""Session clock: wall time plus an offset that all processes of a session read from one file.

Cache lifetimes, idle times and daily limits use only this clock, so a test can move all processes hours ahead by
writing one file.
"""

import contextlib
import os
import time
from pathlib import Path

import attrs
from filelock import FileLock

from coterie.files import replace_file

CLOCK_FILE_VARIABLE = "COTERIE_CLOCK"
"""Environment variable with the path of the offset file; inherited by every process of a session."""

LOCK_TIMEOUT = 10.0


@attrs.define(eq=False)
class Clock:
    """Wall time plus an offset in seconds.

    Without a *file*, the offset is valid for this object only. With a *file*, the offset is stored there and shared:
    each call of `now` sees a change by another process, at the cost of one `stat`.
    """

    file: Path | None = None
    _offset: float = 0.0
    _version: tuple[int, int] | None = None

    @classmethod
    def from_environment(cls) -> "Clock":
        """Return the clock of the session: shared if `COTERIE_CLOCK` names a file, otherwise plain wall time."""
        path = os.environ.get(CLOCK_FILE_VARIABLE)
        return cls(file=Path(path) if path else None)

    def now(self) -> float:
        """Return the current time of this clock: wall time in seconds since 1970, plus the offset."""
        return time.time() + self.offset

    @property
    def offset(self) -> float:
        """Seconds that this clock is ahead of wall time; negative if it is behind."""
        if self.file is not None:
            with contextlib.suppress(FileNotFoundError):
                status = self.file.stat()
                # `advance` replaces the file, so a new offset has a new inode or time stamp.
                version = (status.st_ino, status.st_mtime_ns)
                if version != self._version:
                    self._offset, self._version = float(self.file.read_text()), version
        return self._offset

    def advance(self, seconds: float) -> None:
        """Move the clock forward by *seconds*; a shared clock moves for every process that reads its file.

        Concurrent calls of several processes add up. Raises `OSError` if the file cannot be replaced, and
        `filelock.Timeout` if another process locks the file for too long; then the clock does not move.
        """
        if self.file is None:
            self._offset += seconds
            return
        with FileLock(f"{self.file}.lock", timeout=LOCK_TIMEOUT):
            offset = self.offset + seconds
            replace_file(self.file, f"{offset!r}\n".encode())
        self._offset = offset

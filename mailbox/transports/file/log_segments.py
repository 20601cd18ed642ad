"""Segments: numbered files that form the log of a mailbox. Messages are appended to the last one; full ones are sealed.

To seal a segment, a process takes an exclusive `flock` and removes the write permission. Writers append under a shared
`flock` and check the permission first, so no write reaches a sealed segment, even if a process dies. A segment is
sealed before the next one is created. The last segment is never deleted, so numbers are not reused.
"""

import fcntl
import os
import re
import stat
import time
from pathlib import Path

from filelock import FileLock

from coterie.files import Appender, sync_directory
from coterie.mailbox.transports.file.fast_stat import FileStat

SEGMENT_BYTES = 8 * 1024 * 1024
"""Size of a segment (log file) in bytes from which the next writer seals it and continues in a new one."""

LOCK_TIMEOUT = 10.0
_LOCK_AGAIN = 0.002
"""Seconds between attempts to take the rotation lock; short, because many processes may open one mailbox together."""
_SEALING_PATIENCE = 0.05
_SUFFIX = ".log"
_JOURNAL = re.compile(r"(\d+)-\d+-\d+\.journal")
_OPEN_MODE = 0o600
_SEALED_MODE = 0o400


def segment_path(directory: Path, number: int) -> Path:
    """Return the path of segment (log file) *number* of the mailbox in *directory*, such as `000001.log`."""
    return directory / f"{number:06}{_SUFFIX}"


def segment_numbers(directory: Path) -> list[int]:
    """Return the numbers of a mailbox's log files, oldest first; [] if *directory* does not exist. Raises `OSError`."""
    try:
        names = [entry.name for entry in directory.iterdir()]
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())


def journal_path(segment: Path, number: int) -> Path:
    """Return the path of this process's journal *number*, for copies of messages appended to log file *segment*."""
    return segment.with_name(f"{segment.stem}-{os.getpid()}-{number}.journal")


def find_journals(directory: Path) -> list[tuple[int, Path]]:
    """List a mailbox's journals (copies of new messages) as pairs of log file number and path. Raises `OSError`."""
    try:
        matches = [(_JOURNAL.fullmatch(entry.name), entry) for entry in directory.iterdir()]
    except FileNotFoundError:
        return []
    return [(int(match[1]), entry) for match, entry in matches if match is not None]


def is_sealed(status: FileStat | os.stat_result) -> bool:
    """True if *status* is that of a sealed segment: a log file without write permission, which no longer grows."""
    return not status.st_mode & stat.S_IWUSR


def try_lock(descriptor: int, kind: int) -> bool:
    """Take a `flock` of *kind* (shared or exclusive) without waiting; False if another holder's lock conflicts."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Release the `flock` that is held on the open file *descriptor*."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def lock_rotation(directory: Path) -> FileLock:
    """Return a mailbox's lock for creating log files and removing journals. Taking it may raise `filelock.Timeout`."""
    return FileLock(directory / "rotation.lock", thread_local=False, timeout=LOCK_TIMEOUT, poll_interval=_LOCK_AGAIN)


def open_last_sync(directory: Path, *, after: int, full: int, is_durable: bool) -> tuple[int, int]:
    """Open the last segment (log file) of a mailbox for appending; return its number and descriptor. Blocks.

    Creates a missing *directory* and segment, the first with the number *after* + 1. Seals a last segment of at least
    *full* bytes and creates the next. Raises `OSError` and `filelock.Timeout`.
    """
    make_directory(directory, is_durable=is_durable)
    with lock_rotation(directory):
        number = (segment_numbers(directory) or [0])[-1]
        if number == 0:
            number = after + 1
            _create(segment_path(directory, number))
        else:
            last = segment_path(directory, number)
            status = last.stat()
            if is_sealed(status) or (status.st_size >= full and _seal(last)):
                number += 1
                _create(segment_path(directory, number))
        if is_durable:
            sync_directory(directory)  # the process that created the segment may not have synced it
        # Never with O_CREAT: a segment deleted in the meantime must not be recreated empty.
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        return number, os.open(segment_path(directory, number), flags)


def make_directory(directory: Path, *, is_durable: bool) -> None:
    """Create *directory* for a mailbox, with access only for this user, if it is missing. Raises `OSError`."""
    if directory.is_dir():
        return
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_durable:
        sync_directory(directory.parent)


def _seal(path: Path) -> bool:
    # A separate descriptor: locks belong to descriptors, and the one of a writer of this process would be converted.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        give_up = time.monotonic() + _SEALING_PATIENCE
        while not try_lock(descriptor, fcntl.LOCK_EX):
            # A writer was stopped in the middle of an append. The segment may exceed its size until it can be sealed.
            if time.monotonic() > give_up:
                return False
            time.sleep(0.001)
        if find_journals(path.parent):
            # A power cut after sealing could not be repaired from a journal.
            Appender(path, descriptor).sync()
        os.fchmod(descriptor, _SEALED_MODE)
    finally:
        os.close(descriptor)
    return True


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OPEN_MODE))

"""The log of a mailbox is cut into numbered files; writers append to the last, and a full one is sealed for good.

A segment is sealed by its mode bits, under an exclusive `flock`: writers append under a shared one and look at the
bits first, so nothing is ever appended to a sealed segment, whoever dies when. Sealing comes before the next segment is
made; if nobody lives to make it, the next writer does. The last one is never deleted, so numbers are not used twice.
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
"""A segment that has grown to this is sealed by the next writer."""

LOCK_TIMEOUT = 10.0
_LOCK_AGAIN = 0.002
"""Seconds until a lock is tried again that is held for less: many may open one mailbox at once."""
_SEALING_PATIENCE = 0.05
_SUFFIX = ".log"
_JOURNAL = re.compile(r"(\d+)-\d+-\d+\.journal")
_OPEN_MODE = 0o600
_SEALED_MODE = 0o400


def segment_path(directory: Path, number: int) -> Path:
    """Where a segment lies."""
    return directory / f"{number:06}{_SUFFIX}"


def segment_numbers(directory: Path) -> list[int]:
    """The segments there are, oldest first; none in a directory that does not exist. Raises `OSError`."""
    try:
        names = [entry.name for entry in directory.iterdir()]
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())


def journal_path(segment: Path, number: int) -> Path:
    """Where this process keeps its journal of that *number* for a segment."""
    return segment.with_name(f"{segment.stem}-{os.getpid()}-{number}.journal")


def find_journals(directory: Path) -> list[tuple[int, Path]]:
    """The journals in a mailbox, each with the segment it is for. Raises `OSError`."""
    try:
        matches = [(_JOURNAL.fullmatch(entry.name), entry) for entry in directory.iterdir()]
    except FileNotFoundError:
        return []
    return [(int(match[1]), entry) for match, entry in matches if match is not None]


def is_sealed(status: FileStat | os.stat_result) -> bool:
    """Whether nothing is appended to the segment of this status any more."""
    return not status.st_mode & stat.S_IWUSR


def try_lock(descriptor: int, kind: int) -> bool:
    """Take a `flock` of that *kind* if it can be had at once."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Give a `flock` back."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def lock_rotation(directory: Path) -> FileLock:
    """Held for a moment, by who makes segments or ends journals. It raises `filelock.Timeout`."""
    return FileLock(directory / "rotation.lock", thread_local=False, timeout=LOCK_TIMEOUT, poll_interval=_LOCK_AGAIN)


def open_last_sync(directory: Path, *, after: int, full: int, is_durable: bool) -> tuple[int, int]:
    """The number and a descriptor of the segment to append to; it and *directory* are made if they are not there.

    A segment of *full* bytes is sealed. The first one gets the number *after* + 1. Raises `OSError` and
    `filelock.Timeout`.
    """
    make_directory(directory, is_durable=is_durable)
    with lock_rotation(directory):
        number = (segment_numbers(directory) or [0])[-1]
        if number == 0:
            number = after + 1
            _create(segment_path(directory, number))
        elif _seal_if_full(segment_path(directory, number), full):
            number += 1
            _create(segment_path(directory, number))
        if is_durable:
            sync_directory(directory)  # whoever made it may not have done so
        # Never with O_CREAT: a name that has vanished meanwhile must not come back as an empty segment.
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        return number, os.open(segment_path(directory, number), flags)


def make_directory(directory: Path, *, is_durable: bool) -> None:
    """Make the directory of a mailbox, closed to others, if it is not there. Raises `OSError`."""
    if directory.is_dir():
        return
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_durable:
        sync_directory(directory.parent)


def _seal_if_full(path: Path, full: int) -> bool:
    status = path.stat()
    return is_sealed(status) or (status.st_size >= full and _seal(path))


def _seal(path: Path) -> bool:
    # Its own descriptor: a lock belongs to one, and that of a writer of this process would only be converted.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        give_up = time.monotonic() + _SEALING_PATIENCE
        while not try_lock(descriptor, fcntl.LOCK_EX):
            # Somebody was stopped in the middle of an append. A segment may well grow over its size meanwhile.
            if time.monotonic() > give_up:
                return False
            time.sleep(0.001)
        if find_journals(path.parent):
            # Nobody can put back what a power cut takes from a segment that is sealed.
            Appender(path, descriptor).sync()
        os.fchmod(descriptor, _SEALED_MODE)
    finally:
        os.close(descriptor)
    return True


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OPEN_MODE))

"""The lock that makes a process the only reader of a mailbox."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from coterie.mailbox.errors import MailboxBusy
from coterie.mailbox.transports.file.fast_stat import fast_fstat, fast_stat
from coterie.mailbox.transports.file.log_segments import make_directory, try_lock
from coterie.mailbox.transports.file.wakeup import LOCK_FILE, WakeupListener, open_wakeup_listener


@attrs.define(eq=False)
class ReaderLock:
    """The right to read a mailbox."""

    wakeup: WakeupListener
    _lock: str
    _identity: tuple[int, int]
    """Of the file that is locked."""

    def is_lost(self) -> bool:
        """Whether the mailbox that is there now is another one: the directory was deleted or moved away."""
        try:
            there = fast_stat(self._lock)
        except (FileNotFoundError, NotADirectoryError):
            return True
        return (there.st_ino, there.st_dev) != self._identity


@contextmanager
def acquire_reader_lock(name: str, directory: Path, *, is_durable: bool) -> Iterator[ReaderLock]:
    """Be the reader of the mailbox until the block ends; it is made if it is not there.

    Raises `MailboxBusy` while somebody else is, and `OSError`.
    """
    make_directory(directory, is_durable=is_durable)
    lock = directory / LOCK_FILE
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not try_lock(descriptor, fcntl.LOCK_EX):
            raise MailboxBusy(name)
        held = fast_fstat(descriptor)
        with open_wakeup_listener(directory, descriptor) as bell:
            yield ReaderLock(bell, str(lock), (held.st_ino, held.st_dev))
    finally:
        os.close(descriptor)

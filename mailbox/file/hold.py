"""A mailbox has one reader: whoever holds the lock on a file in it, for as long as that process lives."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from coterie.mailbox.errors import MailboxBusy
from coterie.mailbox.file.bell import LOCK_FILE, Bell, open_bell
from coterie.mailbox.file.looking import look, look_at
from coterie.mailbox.file.segments import make_directory, try_lock


@attrs.define(eq=False)
class Hold:
    """The right to read a mailbox."""

    bell: Bell
    _lock: str
    _identity: tuple[int, int]
    """Of the file that is locked."""

    def is_lost(self) -> bool:
        """Whether the mailbox that is there now is another one: the directory was deleted or moved away."""
        try:
            there = look_at(self._lock)
        except (FileNotFoundError, NotADirectoryError):
            return True
        return (there.st_ino, there.st_dev) != self._identity


@contextmanager
def open_hold(name: str, directory: Path, *, is_durable: bool) -> Iterator[Hold]:
    """Be the reader of the mailbox until the block ends; it is made if it is not there.

    Raises `MailboxBusy` while somebody else is, and `OSError`.
    """
    make_directory(directory, is_durable=is_durable)
    lock = directory / LOCK_FILE
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not try_lock(descriptor, fcntl.LOCK_EX):
            raise MailboxBusy(name)
        held = look(descriptor)
        with open_bell(directory, descriptor) as bell:
            yield Hold(bell, str(lock), (held.st_ino, held.st_dev))
    finally:
        os.close(descriptor)

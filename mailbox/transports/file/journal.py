"""Journal: a file with synced copies of the messages appended to a log, so that these messages survive a power cut.

A synced append makes the disk also write the length and blocks of the log, and all writers of the log wait for that.
So appends are not synced: each writer also copies its messages into a journal, whose size is fixed, and syncs that.
When the journal is full, the log is synced and the journal is reused. If a writer died, the next process that opens
the mailbox copies messages that the log has lost back from the journal.
"""

import fcntl
import itertools
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import attrs

from coterie.files import Appender, BlockFile, check_record, restore_bytes
from coterie.mailbox.transports.file.group_commit import GroupCommit
from coterie.mailbox.transports.file.log_segments import (
    find_journals,
    is_sealed,
    journal_path,
    lock_rotation,
    segment_path,
    try_lock,
)

_COPY = b"\ninode %d offset %d%b"
"""Format of a copy: place of the record in the log, and the record, whose only newlines are its first and last byte."""
_COPIES = re.compile(rb"\ninode (\d+) offset (\d+)(?=(\n[^\n]+\n))")
_numbers = itertools.count()


@attrs.define(eq=False)
class Journal:
    """File with synced copies of the messages that one writer has appended to a log file since that was synced."""

    _log: Appender
    _inode: int
    _blocks: BlockFile
    _end: int = 0
    """Offset in the journal file for the next copies; 0 again after the log was synced."""
    _staged: list[bytes] = attrs.field(factory=list)
    _is_leaving: bool = False
    _has_failed: bool = False
    """True after a failed sync of the log; before the next sync, the messages are then written to the log again."""
    _commit: GroupCommit[bytes] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._commit = GroupCommit(self._take, self._write)

    @classmethod
    def create(cls, log: Appender, size: int) -> "Journal":
        """Create a file of *size* bytes for copies of messages that this process appends to *log*. Raises `OSError`."""
        blocks = BlockFile.create(journal_path(log.path, next(_numbers)), size)
        return cls(log, os.fstat(log.fileno()).st_ino, blocks)

    async def keep(self, record: bytes, offset: int) -> None:
        """Make *record*, just appended to the log at *offset*, survive a power cut: copy it here, or sync the log.

        Returns when this is done. Concurrent calls share one write. Raises `OSError`.
        """
        self._staged.append(_COPY % (self._inode, offset, record))
        if not self._commit.run_exclusive():
            await self._commit.run()

    async def leave(self) -> None:
        """Sync the log, and return when this is done, so that the journal is no longer needed. Raises `OSError`."""
        self._is_leaving = True
        await self._commit.run()

    def close(self) -> None:
        """Sync the log, and delete the journal. If it fails, the next opening of the mailbox runs `recover`. Blocks."""
        with suppress(OSError):
            self._sync_log()
            self._blocks.path.unlink(missing_ok=True)
        self._blocks.close()

    def _take(self) -> bytes:
        staged, self._staged = b"".join(self._staged), []
        return staged

    def _write(self, staged: bytes) -> None:
        if self._is_leaving or self._end + len(staged) > self._blocks.size:
            self._sync_log()  # the log already has the staged records
        else:
            self._end += self._blocks.write(staged, self._end)

    def _sync_log(self) -> None:
        if self._has_failed:
            # After a failed sync the kernel may consider the pages written, so that a retry would not write them.
            _restore(self._log.path, self._blocks.path.read_bytes())
        self._has_failed = True
        self._log.sync()
        self._has_failed, self._end = False, 0


@attrs.frozen
class _Copy:
    """A record (stored message) from a journal, with the inode of its log file and its offset in that file."""

    inode: int
    offset: int
    record: bytes

    def fits(self, segment: int) -> bool:
        """True if the log file open as *segment* has only bytes of this record, or zeros, at the record's offset."""
        found = os.pread(segment, len(self.record), self.offset)
        # The disk may have written any of the pages, and zeros for the others.
        pairs = zip(found, self.record, strict=False)
        return found == self.record or all(there in (0, kept) for there, kept in pairs)


def recover(directory: Path) -> None:
    """Copy messages that the log of a mailbox lost in a power cut back from the journals of dead writers.

    Deletes these journals. Blocks. Raises `OSError`, and `filelock.Timeout` if another process holds the lock.
    """
    if find_journals(directory):
        with lock_rotation(directory):
            for number, journal in find_journals(directory):
                with suppress(FileNotFoundError):  # its writer has just deleted it
                    _recover(journal, segment_path(directory, number))


def _recover(journal: Path, segment: Path) -> None:
    descriptor = os.open(journal, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if try_lock(descriptor, fcntl.LOCK_EX):  # else its writer is alive
            with suppress(FileNotFoundError):  # all messages of the segment are acknowledged
                _restore(segment, journal.read_bytes())
            journal.unlink()
    finally:
        os.close(descriptor)


def _restore(segment: Path, copies: bytes) -> None:
    descriptor = os.open(segment, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if is_sealed(status):
            return  # it was synced before it was sealed
        fitting = [copy for copy in _read(copies) if copy.inode == status.st_ino and copy.fits(descriptor)]
    finally:
        os.close(descriptor)
    # Also records that seem intact: after a failed sync, memory may have them although the disk does not.
    restore_bytes(segment, [(copy.offset, copy.record) for copy in fitting])


def _read(copies: bytes) -> Iterator[_Copy]:
    """Yield the intact copies of messages in a journal's content *copies*, also old ones not yet overwritten."""
    for found in _COPIES.finditer(copies):
        with suppress(ValueError):  # torn or partly overwritten
            check_record(found[3][1:-1])
            yield _Copy(int(found[1]), int(found[2]), found[3])

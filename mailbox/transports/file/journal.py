"""What lets a receipt survive a power cut: a second copy of its record, on the disk before the log itself is.

A synced append makes the disk write a record, and the length and the blocks of its file, which all writers of the log
wait for. So none is synced: a writer puts a copy into a file of its own that is only written over. Once that is full
the log is synced, and it begins anew. What a dead writer has left is put back where the log has lost it, before anybody
else reads or appends.
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
"""A record begins and ends with a newline, and has none within: nothing in it can pass for the head of a copy."""
_COPIES = re.compile(rb"\ninode (\d+) offset (\d+)(?=(\n[^\n]+\n))")
_numbers = itertools.count()


@attrs.define(eq=False)
class Journal:
    """Keeps what one writer appends to one segment, until that is synced."""

    _log: Appender
    _inode: int
    _blocks: BlockFile
    _end: int = 0
    """Where the next copies go."""
    _staged: list[bytes] = attrs.field(factory=list)
    _is_leaving: bool = False
    _has_failed: bool = False
    """Whether the log could not be synced."""
    _commit: GroupCommit[bytes] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._commit = GroupCommit(self._take, self._write)

    @classmethod
    def create(cls, log: Appender, size: int) -> "Journal":
        """For what this process appends to a segment. Blocks; raises `OSError`."""
        blocks = BlockFile.create(journal_path(log.path, next(_numbers)), size)
        return cls(log, os.fstat(log.fileno()).st_ino, blocks)

    async def keep(self, record: bytes, offset: int) -> None:
        """Return once *record*, which was just appended at *offset*, survives a power cut. Raises `OSError`.

        Many who ask at once share one write.
        """
        self._staged.append(_COPY % (self._inode, offset, record))
        if not self._commit.run_exclusive():
            await self._commit.run()

    async def leave(self) -> None:
        """Return once the log is synced, so that nobody needs the journal any more. Raises `OSError`."""
        self._is_leaving = True
        await self._commit.run()

    def close(self) -> None:
        """Sync the log, and delete the file; where that fails, whoever opens the mailbox next does so. Blocks."""
        with suppress(OSError):
            self._sync_log()
            self._blocks.path.unlink(missing_ok=True)
        self._blocks.close()

    def _take(self) -> bytes:
        staged, self._staged = b"".join(self._staged), []
        return staged

    def _write(self, staged: bytes) -> None:
        if self._is_leaving or self._end + len(staged) > self._blocks.size:
            self._sync_log()  # what is staged is in it already
        else:
            self._end += self._blocks.write(staged, self._end)

    def _sync_log(self) -> None:
        if self._has_failed:
            # What the disk did not take then the kernel may hold for written: it would not try again by itself.
            _restore(self._log.path, self._blocks.path.read_bytes())
        self._has_failed = True
        self._log.sync()
        self._has_failed, self._end = False, 0


@attrs.frozen
class _Copy:
    """A record, and where it belongs."""

    inode: int
    offset: int
    record: bytes

    def fits(self, segment: int) -> bool:
        """Whether it stands where it belongs in this open *segment*, or what is left of it, and nothing else does."""
        found = os.pread(segment, len(self.record), self.offset)
        # The disk may have any of its pages, and zeros for the others.
        pairs = zip(found, self.record, strict=False)
        return found == self.record or all(there in (0, kept) for there, kept in pairs)


def recover(directory: Path) -> None:
    """Put back what a power cut took from the log of a mailbox, and delete the journals of dead writers.

    Blocks; raises `OSError` and `filelock.Timeout`.
    """
    if find_journals(directory):
        with lock_rotation(directory):
            for number, journal in find_journals(directory):
                with suppress(FileNotFoundError):  # its writer has just deleted it
                    _recover(journal, segment_path(directory, number))


def _recover(journal: Path, segment: Path) -> None:
    descriptor = os.open(journal, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if try_lock(descriptor, fcntl.LOCK_EX):  # else its writer lives
            with suppress(FileNotFoundError):  # all that was in the segment is acknowledged
                _restore(segment, journal.read_bytes())
            journal.unlink()
    finally:
        os.close(descriptor)


def _restore(segment: Path, copies: bytes) -> None:
    descriptor = os.open(segment, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if is_sealed(status):
            return  # it was synced before
        fitting = [copy for copy in _read(copies) if copy.inode == status.st_ino and copy.fits(descriptor)]
    finally:
        os.close(descriptor)
    # Also what seems to be there: after a sync that failed, memory may have what the disk has not.
    restore_bytes(segment, [(copy.offset, copy.record) for copy in fitting])


def _read(copies: bytes) -> Iterator[_Copy]:
    """What stands in a journal; also from earlier rounds, and between pieces of what was written over."""
    for found in _COPIES.finditer(copies):
        with suppress(ValueError):  # it is torn, or partly written over
            check_record(found[3][1:-1])
            yield _Copy(int(found[1]), int(found[2]), found[3])

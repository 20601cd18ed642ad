"""Writer of a file mailbox: appends each message to the log under a shared lock, and wakes the mailbox's reader."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import attrs
import trio

from coterie.files import Appender
from coterie.mailbox.contract import MailLimits
from coterie.mailbox.errors import MailboxFailed, MailboxFull
from coterie.mailbox.fault_points import trigger
from coterie.mailbox.transports.file.backlog_size import SMALLEST_RECORD, BacklogSize
from coterie.mailbox.transports.file.cursor import load_cursor
from coterie.mailbox.transports.file.fast_stat import FileStat, fast_fstat
from coterie.mailbox.transports.file.journal import Journal, recover
from coterie.mailbox.transports.file.log_segments import is_sealed, open_last_sync, segment_path, try_lock, unlock
from coterie.mailbox.transports.file.wakeup import WakeupSender

_LOCK_AGAIN = 0.001
"""Seconds until the next attempt to lock the log file, if another process has locked it to seal or check it."""


@attrs.define(eq=False)
class _Segment:
    number: int
    descriptor: int
    log: Appender
    wakeup: WakeupSender
    full: int
    """Size of the log file in bytes from which messages go to the next log file."""
    ample: int
    """Size of the log file in bytes up to which the mailbox is certainly within its limits, so they are not checked."""
    journal: Journal | None
    """Journal (synced copies of new messages); None if messages need not survive a power cut."""

    def is_spent(self, status: FileStat | os.stat_result) -> bool:
        """True if the log file, by its current *status*, is sealed, deleted or full, so that the next one is needed."""
        return is_sealed(status) or status.st_nlink == 0 or status.st_size >= self.full

    def close(self) -> None:
        if self.journal is not None:
            self.journal.close()
        self.wakeup.close()
        self.log.close()


@attrs.define(eq=False, kw_only=True)
class MailboxWriter:
    """Appends messages to the mailbox in *directory*; creates the directory if it is missing or was deleted.

    Several processes may append at the same time, so each may exceed a limit of the mailbox by one message.
    """

    name: str
    directory: Path
    limits: MailLimits
    segment_bytes: int
    is_durable: bool
    """True if a message must survive a power cut once `append` has returned."""
    _segment: _Segment | None = attrs.field(default=None, init=False)
    _backlog: BacklogSize = attrs.field(init=False)
    _moving: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _uncounted_bytes: int = attrs.field(init=False)
    """Bytes of unacknowledged messages below which their number cannot reach its limit, so they are not counted."""
    _stat: Callable[[int], FileStat | os.stat_result] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._backlog = BacklogSize(self.directory)
        # Without syncs, the plain `fstat` is cheaper: `fast_fstat` only helps if later writes are synced.
        self._stat = fast_fstat if self.is_durable else os.fstat
        self._uncounted_bytes = min(self.limits.bytes, self.limits.messages * SMALLEST_RECORD)

    async def append(self, record: bytes) -> None:
        """Append *record*, an encoded message with checksum, to the mailbox, and wake the reader if it sleeps.

        Raises `MailboxFull`, and `MailboxFailed`: then the log may have an incomplete record, which the reader detects.
        """
        try:
            segment = self._segment or await self._move(None)
            while not self._append_nowait(segment, record):
                segment = await self._move(segment)
            # Before the sync: the reader can already see the record, and wakes up in parallel.
            if trigger("drop", "bell", self.name) is None:
                segment.wakeup.notify()
            if segment.journal is not None:
                await segment.journal.keep(record, os.lseek(segment.descriptor, 0, os.SEEK_CUR) - len(record))
        except OSError as exc:
            raise MailboxFailed(self.name, f"cannot store the message: {exc.strerror or exc}; send it again") from exc

    def close(self) -> None:
        """Close the files of this writer; a later `append` opens them again."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def _append_nowait(self, segment: _Segment, record: bytes) -> bool:
        """Append *record* to *segment* (log file) and return True; False if it is locked or another one is needed."""
        if segment is not self._segment or not try_lock(segment.descriptor, fcntl.LOCK_SH):
            return False
        try:
            status = self._stat(segment.descriptor)
            if segment.is_spent(status):
                return False
            if status.st_size + len(record) > segment.ample:
                self._check_room(segment, status.st_size, len(record))
            segment.log.append(record)
            if trigger("duplicate", "file", self.name) is not None:
                segment.log.append(record)
        finally:
            unlock(segment.descriptor)
        return True

    def _check_room(self, segment: _Segment, size: int, more: int) -> None:
        """Raise `MailboxFull` if *more* bytes in log file *segment*, now of *size* bytes, would exceed a limit."""
        self._backlog.refresh()
        try:
            self._measure(segment.number, size, more)
        except MailboxFull:
            # Two cursors written within one clock tick may look the same: never reject because of an old one.
            self._backlog.refresh(is_forced=True)
            self._measure(segment.number, size, more)
        segment.ample = self._backlog.size_with(segment.number, self._uncounted_bytes)

    def _measure(self, number: int, size: int, more: int) -> None:
        waiting = self._backlog.bytes(number, size)
        if waiting + more > self.limits.bytes:
            raise MailboxFull(self.name, waiting, self.limits.bytes, "bytes")
        if waiting < self._uncounted_bytes:
            return
        messages = self._backlog.messages(number, size)
        if messages >= self.limits.messages:
            raise MailboxFull(self.name, messages, self.limits.messages, "messages")

    async def _move(self, old: _Segment | None) -> _Segment:
        """Return the segment (log file) to append to after an append to *old* failed; *old* if it was only locked."""
        if old is not None and old is self._segment and not old.is_spent(os.fstat(old.descriptor)):
            await trio.sleep(_LOCK_AGAIN)  # the segment was only locked
            return old
        async with self._moving:
            if self._segment is None or self._segment is old:
                opened, self._backlog = await trio.to_thread.run_sync(self._open_sync)
                before, self._segment = self._segment, opened
                if before is not None:
                    await self._retire(before)
            return self._segment

    async def _retire(self, segment: _Segment) -> None:
        try:
            if segment.journal is not None:
                # Other tasks may wait for its sync and need the descriptor until then. The disk bounds the time.
                with trio.CancelScope(shield=True):
                    await segment.journal.leave()
        finally:
            segment.close()

    def _open_sync(self) -> tuple[_Segment, BacklogSize]:
        recover(self.directory)
        cursor = load_cursor(self.directory)
        number, descriptor = open_last_sync(
            self.directory,
            after=0 if cursor is None else cursor.last_known,
            full=self.segment_bytes,
            is_durable=self.is_durable,
        )
        try:
            return self._open_segment(number, descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def _open_segment(self, number: int, descriptor: int) -> tuple[_Segment, BacklogSize]:
        size = os.fstat(descriptor).st_size
        # Counted in this thread, so that the first append has only new bytes to count.
        backlog_size = BacklogSize(self.directory)
        backlog_size.refresh()
        if backlog_size.bytes(number, size) >= self._uncounted_bytes:
            backlog_size.messages(number, size)
        # If sealing failed, keep appending and retry after the segment has grown.
        full = max(self.segment_bytes, size + self.segment_bytes // 8)
        ample = backlog_size.size_with(number, self._uncounted_bytes)
        log = Appender(segment_path(self.directory, number), descriptor)
        wakeup = WakeupSender.open(self.directory)
        try:
            journal = Journal.create(log, self.segment_bytes // 8) if self.is_durable else None
        except BaseException:
            wakeup.close()
            raise
        return _Segment(number, descriptor, log, wakeup, full, ample, journal), backlog_size

"""Inbox of the file transport: one process locks a mailbox, reads its messages from log files and acknowledges them.

Sleep and wakeup cost the reader and the writer more than a message. A busy reader never sleeps, but writers that wait
for a disk would wake it for each message. So at a high rate, the reader waits a moment and reads a batch.
"""

import contextlib
import fcntl
import math
import os
from collections.abc import Callable, Collection, Container, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

from coterie.mailbox.contract import Delivery, StoreDeadLetter
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.errors import EnvelopeCorrupt, MailboxBusy, MailboxError, MailboxFailed
from coterie.mailbox.fault_points import FaultPoint
from coterie.mailbox.transports.file.cursor import AckRange, Cursor, CursorLog, Position
from coterie.mailbox.transports.file.dedup import DeliveredIds
from coterie.mailbox.transports.file.fast_stat import fast_fstat, fast_stat
from coterie.mailbox.transports.file.group_commit import GroupCommit
from coterie.mailbox.transports.file.journal import recover
from coterie.mailbox.transports.file.log_reader import LogReader, find_cursor
from coterie.mailbox.transports.file.log_segments import make_directory, segment_numbers, segment_path, try_lock
from coterie.mailbox.transports.file.segment_reader import LogRecord, parse_record
from coterie.mailbox.transports.file.wakeup import LOCK_FILE, WakeupListener, open_wakeup_listener
from coterie.mailbox.validation import MessageValidator


@attrs.define(eq=False)
class ReaderLock:
    """Lock of the one reader of a mailbox; also detects that the mailbox was deleted or replaced."""

    wakeup: WakeupListener
    _lock: str
    _identity: tuple[int, int]
    """Inode and device of the lock file when it was locked; a replaced file has others."""

    def is_lost(self) -> bool:
        """True if the lock file is missing or was replaced, because the mailbox directory was deleted or moved."""
        try:
            current = fast_stat(self._lock)
        except (FileNotFoundError, NotADirectoryError):
            return True
        return (current.st_ino, current.st_dev) != self._identity


@contextmanager
def acquire_reader_lock(name: str, directory: Path, *, is_durable: bool) -> Iterator[ReaderLock]:
    """Lock the mailbox *name* in *directory* for its only reader until the block ends; create a missing directory.

    Does not wait: raises `MailboxBusy` if another reader holds the lock. Also raises `OSError`.
    """
    make_directory(directory, is_durable=is_durable)
    lock = directory / LOCK_FILE
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not try_lock(descriptor, fcntl.LOCK_EX):
            raise MailboxBusy(name)
        held = fast_fstat(descriptor)
        with open_wakeup_listener(directory, descriptor) as listener:
            yield ReaderLock(listener, str(lock), (held.st_ino, held.st_dev))
    finally:
        os.close(descriptor)


IN_A_ROW = 8
"""Number of waits for mail, each within `GATHERING` seconds of the one before, after which the reader reads batches."""
GATHERING = 0.001
"""Seconds that a batching reader sleeps before it looks for mail, so that several messages can arrive."""
WIDE_AWAKE = 1.0
"""Seconds without batching (sleeps that collect mail) after a sleep in which at most one message came."""


@attrs.define(eq=False)
class ReadBatching:
    """Decides when the reader of a mailbox sleeps briefly before it looks for mail, to then read several messages."""

    _came: int = 0
    """Number of messages received since the last wait for mail."""
    _waited: float = -math.inf
    """Time at which the last wait for mail began, by `trio.current_time`."""
    _in_a_row: int = 0
    _has_gathered: bool = False
    _awake_until: float = -math.inf

    def note_messages(self, count: int) -> None:
        """Record that the reader has just received *count* messages; `delay_wakeup` decides by this number."""
        self._came += count

    async def delay_wakeup(self) -> bool:
        """Before a wait for mail: sleep `GATHERING` seconds and return True if mail comes fast; else return False."""
        now = trio.current_time()
        if not self._has_gathered:
            self._in_a_row = self._in_a_row + 1 if now - self._waited < GATHERING else 0
        elif self._came < 2:
            self._in_a_row, self._awake_until = 0, now + WIDE_AWAKE
        self._came, self._waited = 0, now
        self._has_gathered = self._in_a_row >= IN_A_ROW and now >= self._awake_until
        if self._has_gathered:
            await trio.sleep(GATHERING)
        return self._has_gathered


@attrs.define(eq=False, kw_only=True)
class FileInbox:
    """Inbox of one mailbox, a directory with log files, for its only reader; implements `Inbox`."""

    directory: Path
    seen: Container[MessageId]
    validator: MessageValidator
    store_dead_letter: StoreDeadLetter
    is_durable: bool
    check_member: Callable[[], object]
    """Function that raises `MailboxError` if the owner of the mailbox is no longer on the roster (list of members)."""
    _open_resources: contextlib.ExitStack = attrs.field(factory=contextlib.ExitStack, init=False)
    _reader_lock: ReaderLock | None = attrs.field(default=None, init=False)
    """Lock of this reader; None if the mailbox was deleted and could not be created and locked again."""
    _log_reader: LogReader = attrs.field(init=False)
    _taken: dict[MessageId, list[AckRange]] = attrs.field(factory=dict, init=False)
    """Maps ids of unacknowledged messages to their byte ranges in the log; no ranges if the log was deleted."""
    _delivered_ids: DeliveredIds = attrs.field(factory=DeliveredIds, init=False)
    _again_before: Position = attrs.field(default=(0, 0), init=False)
    """Log position; messages before it are marked `is_again`, because an earlier reader may have received them."""
    _batching: ReadBatching = attrs.field(factory=ReadBatching, init=False)
    _commit: GroupCommit[Cursor] = attrs.field(init=False)
    _cursors: CursorLog = attrs.field(init=False)
    _has_news: bool = attrs.field(default=False, init=False)
    """True if a message was dropped or became a dead letter, and the cursor file does not yet record it."""
    _cleaned_up_to: int | None = attrs.field(default=None, init=False)
    """Segment number of the cursor when acknowledged segments (log files) were last deleted; None before."""
    _is_closed: bool = attrs.field(default=False, init=False)
    _fault_point: FaultPoint = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._fault_point = FaultPoint("file", self.validator.name)
        self._commit = GroupCommit(self._take_cursor, self._write)
        self._cursors = CursorLog.of(self.directory)

    def take_nowait(self, limit: int | None = None) -> list[Delivery]:
        """Return new messages without waiting, at most *limit*, as `Inbox.take_nowait`. Recreates a deleted mailbox."""
        self._check_open()
        deliveries: list[Delivery] = []
        try:
            while limit is None or len(deliveries) < limit:
                line = self._next_record(is_first=not deliveries)
                if line is None or not self._fault_point.can_read(line.span):
                    break
                if (delivery := self._process(line)) is not None:
                    deliveries.append(delivery)
        except (OSError, MailboxError) as exc:
            # Messages taken before must not be lost with the error, which occurs again at the next call.
            if not deliveries:
                raise self._failed(exc) from exc
        self._batching.note_messages(len(deliveries))
        return self._fault_point.reorder(deliveries)

    async def wait(self) -> None:
        """Wait until `take_nowait` may return a message, as `Inbox.wait`; may also return when there is none."""
        self._check_open()
        await self._fault_point.wait_for_delay()
        # The next `take_nowait` meets the same error and can raise it.
        with contextlib.suppress(OSError):
            if self._has_news:
                await self._commit.run()
            while self._reader_lock is not None:
                if await self._batching.delay_wakeup() and self._log_reader.may_have_record():
                    return
                was_woken = await self._reader_lock.wakeup.wait(self._log_reader.may_have_record)
                if was_woken or self._log_reader.is_unfinished() or self._is_lost():
                    return
        await trio.lowlevel.checkpoint()

    async def acknowledge(self, ids: Collection[MessageId]) -> None:
        """Record that messages *ids* need no new delivery, as `Inbox.acknowledge`. Concurrent calls share a write."""
        self._check_open()
        for id_ in ids:
            if id_ not in self._taken and not self._delivered_ids.has_delivered(id_):
                raise ValueError(
                    f"cannot acknowledge message {id_}: this inbox of {self.validator.name!r} has not returned it"
                )
        for id_ in ids:
            if id_ in self._taken:
                for span in self._taken.pop(id_):
                    self._log_reader.progress.finish(span)
                self._delivered_ids.add(id_, is_taken=True)
        try:
            await self._commit.run()
        except OSError as exc:
            raise self._failed(exc) from exc

    def open_sync(self) -> None:
        """Lock the mailbox, repair its log and load its cursor. Blocks. Raises `MailboxBusy` and `MailboxFailed`."""
        try:
            self._enter()
            recover(self.directory)
            self._restore(find_cursor(self.directory))
        except OSError as exc:
            self._open_resources.close()
            raise self._failed(exc) from exc

    def close_sync(self) -> None:
        """Store the position up to which messages were read, and unlock the mailbox for the next reader. Blocks."""
        self._is_closed = True
        # If writing fails, the next reader marks some new messages as delivered again, which is harmless.
        with self._open_resources, contextlib.closing(self._log_reader), contextlib.suppress(OSError):
            if not self._is_lost():
                taken = max(self._again_before, self._log_reader.position)
                self._write(self._log_reader.progress.cursor(taken=taken))

    def _enter(self) -> None:
        lock = acquire_reader_lock(self.validator.name, self.directory, is_durable=self.is_durable)
        self._reader_lock = self._open_resources.enter_context(lock)
        self._open_resources.callback(self._cursors.close)

    def _restore(self, cursor: Cursor) -> None:
        if cursor.taken is not None:
            self._again_before = cursor.taken
        elif self._cursors.path.exists():
            # The last reader was killed, and may have taken all messages.
            last = (segment_numbers(self.directory) or [0])[-1]
            self._again_before = (last, segment_path(self.directory, last).stat().st_size if last else 0)
        self._log_reader = LogReader.from_cursor(self.directory, cursor)
        self._delivered_ids.load(self.directory, cursor, self.validator)
        for span in cursor.done:
            self._delivered_ids.update(self.directory, (span.segment, span.start), span.end, self.validator)
        self._write(self._log_reader.progress.cursor())

    def _next_record(self, *, is_first: bool) -> LogRecord | None:
        # If the lock was lost, another reader may own the log. A segment that is already open is safe to read.
        if self._log_reader.has_begun:
            line = self._log_reader.next_record()
            # A caller that got a message calls again. Check for a lost mailbox only if there would be none.
            if line is not None or not is_first or not self._is_lost():
                return line
        if self._is_lost():
            self._recover()
        return self._log_reader.next_record()

    def _is_lost(self) -> bool:
        return self._reader_lock is None or self._reader_lock.is_lost() or self._log_reader.is_lost()

    def _recover(self) -> None:
        """Create and lock the deleted mailbox again, and read the new one from its start. Deleted messages are lost."""
        self.check_member()
        self._reader_lock = None
        self._open_resources.close()
        self._enter()
        self._log_reader.close()
        self._taken = {id_: [] for id_ in self._taken}
        self._again_before = (0, 0)
        numbers = segment_numbers(self.directory)
        self._log_reader = LogReader.from_cursor(self.directory, Cursor(segment=numbers[0] if numbers else 1))
        self._write(self._log_reader.progress.cursor())

    def _process(self, line: LogRecord) -> Delivery | None:
        """Move behind the stored message *line* and return it; None if dropped or dead-lettered. Raises `OSError`."""
        envelope = self._read(line.content)
        self._log_reader.skip_record(line)
        if envelope is None:
            self._log_reader.progress.finish(line.span)
            self._has_news = True
            return None
        is_copy = envelope.id in self._taken
        # A copy is acknowledged with the first record: acknowledged earlier, it would count as proof for both.
        self._taken.setdefault(envelope.id, []).append(line.span)
        is_again = (line.span.segment, line.span.start) < self._again_before
        return None if is_copy else Delivery(envelope=envelope, is_again=is_again)

    def _read(self, content: bytes) -> Envelope | None:
        """Decode and check the stored message *content*; None if acknowledged or dead-lettered. Raises `OSError`."""
        try:
            envelope = parse_record(content)
        except EnvelopeCorrupt as exc:
            self.store_dead_letter(self.validator.to_dead_letter("corrupt", exc.reason, content))
            return None
        id_ = envelope.id
        if id_ in self._taken:
            return envelope
        # Checked first: a message in the transcript was accepted once, and is no dead letter because it is old now.
        if id_ in self._delivered_ids or id_ in self.seen:
            self._delivered_ids.add(id_, is_taken=self._delivered_ids.has_delivered(id_))
            return None
        if (rejection := self.validator.rejection_reason(envelope)) is not None:
            self.store_dead_letter(self.validator.to_dead_letter(*rejection, envelope.to_bytes(), envelope))
            return None
        return envelope

    def _take_cursor(self) -> Cursor:
        self._has_news = False
        return self._log_reader.progress.cursor()

    def _write(self, cursor: Cursor) -> None:
        # Never synced: if a power cut restores an older cursor, mail is delivered again and the transcript drops it.
        self._cursors.write(cursor)
        if cursor.segment != self._cleaned_up_to:
            # One more segment is kept: from it the next reader loads the ids that detect copies.
            for number in segment_numbers(self.directory):
                if number < cursor.segment - 1:
                    segment_path(self.directory, number).unlink(missing_ok=True)
            self._cleaned_up_to = cursor.segment

    def _failed(self, exc: Exception) -> MailboxFailed:
        reason = f"{exc.strerror or exc}; check the disk and {self.directory}" if isinstance(exc, OSError) else str(exc)
        return MailboxFailed(self.validator.name, reason)

    def _check_open(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError(f"the inbox of {self.validator.name!r} is closed; open it again to use it")

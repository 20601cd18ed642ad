"""The reading end of a file mailbox."""

import contextlib
from collections.abc import Callable, Collection, Container
from pathlib import Path

import attrs
import trio

from coterie.mailbox.contract import Bury, Delivery
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import EnvelopeCorrupt, MailboxError, MailboxFailed
from coterie.mailbox.faults import Seam
from coterie.mailbox.file.commit import GroupCommit
from coterie.mailbox.file.cursor import Cursor, Position, Span
from coterie.mailbox.file.cursor_log import CursorLog
from coterie.mailbox.file.doze import Doze
from coterie.mailbox.file.hold import Hold, open_hold
from coterie.mailbox.file.journal import recover
from coterie.mailbox.file.memory import Memory
from coterie.mailbox.file.reading import Reading, find_cursor
from coterie.mailbox.file.segments import segment_numbers, segment_path
from coterie.mailbox.file.tail import Line, read_record
from coterie.mailbox.ids import MessageId
from coterie.mailbox.screen import Screen


@attrs.define(eq=False, kw_only=True)
class FileInbox:
    """An `Inbox` over one directory."""

    directory: Path
    seen: Container[MessageId]
    screen: Screen
    bury: Bury
    is_durable: bool
    check_member: Callable[[], object]
    """Raises `MailboxError` if the name is not on the roster any more."""
    _held: contextlib.ExitStack = attrs.field(factory=contextlib.ExitStack, init=False)
    _hold: Hold | None = attrs.field(default=None, init=False)
    """None if the mailbox was lost, and could not be had again."""
    _reading: Reading = attrs.field(init=False)
    _taken: dict[MessageId, list[Span]] = attrs.field(factory=dict, init=False)
    """What waits for its acknowledgement, and where it stands; nowhere if the mailbox was deleted since."""
    _memory: Memory = attrs.field(factory=Memory, init=False)
    _again_before: Position = attrs.field(default=(0, 0), init=False)
    """What stands before it may have been taken by an earlier reader."""
    _doze: Doze = attrs.field(factory=Doze, init=False)
    _commit: GroupCommit[Cursor] = attrs.field(init=False)
    _cursors: CursorLog = attrs.field(init=False)
    _has_news: bool = attrs.field(default=False, init=False)
    """Whether something was buried or dropped since the cursor was written."""
    _tidied: int | None = attrs.field(default=None, init=False)
    """The segment of the cursor when what lies before it was last deleted."""
    _is_closed: bool = attrs.field(default=False, init=False)
    _seam: Seam = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._seam = Seam("file", self.screen.name)
        self._commit = GroupCommit(self._take_cursor, self._write)
        self._cursors = CursorLog.of(self.directory)

    def take_nowait(self, limit: int | None = None) -> list[Delivery]:
        """As `Inbox.take_nowait`. A mailbox that was deleted is made again."""
        self._check_open()
        deliveries: list[Delivery] = []
        try:
            while limit is None or len(deliveries) < limit:
                line = self._next_line(is_first=not deliveries)
                if line is None or not self._seam.admits(line.span):
                    break
                if (delivery := self._sort(line)) is not None:
                    deliveries.append(delivery)
        except (OSError, MailboxError) as exc:
            # What was taken before must not be lost with the error, which comes again at the next call.
            if not deliveries:
                raise self._failed(exc) from exc
        self._doze.note_messages(len(deliveries))
        return self._seam.disordered(deliveries)

    async def wait(self) -> None:
        """As `Inbox.wait`."""
        self._check_open()
        await self._seam.opened()
        # An error meets whoever looks next, too, who can be told.
        with contextlib.suppress(OSError):
            if self._has_news:
                await self._commit.run()
            while self._hold is not None:
                if await self._doze.gather() and self._reading.may_have_line():
                    return
                has_rung = await self._hold.bell.wait(self._reading.may_have_line)
                if has_rung or self._reading.is_unfinished() or self._is_lost():
                    return
        await trio.lowlevel.checkpoint()

    async def acknowledge(self, ids: Collection[MessageId]) -> None:
        """As `Inbox.acknowledge`: the cursor is written when it returns, once for all who ask at the same time."""
        self._check_open()
        for id_ in ids:
            if id_ not in self._taken and not self._memory.has_taken(id_):
                raise ValueError(f"{id_} was not taken from the mailbox of {self.screen.name!r}")
        for id_ in ids:
            if id_ in self._taken:
                self._settle(id_)
        try:
            await self._commit.run()
        except OSError as exc:
            raise self._failed(exc) from exc

    def open_sync(self) -> None:
        """Become the reader. Raises `MailboxBusy`, and `MailboxFailed`."""
        try:
            self._enter()
            recover(self.directory)
            self._restore(find_cursor(self.directory))
        except OSError as exc:
            self._held.close()
            raise self._failed(exc) from exc

    def close_sync(self) -> None:
        """Let go of the mailbox, and write down what was taken from it."""
        self._is_closed = True
        # Without it the next reader takes for delivered again what this one had not even seen: no harm.
        with self._held, contextlib.closing(self._reading), contextlib.suppress(OSError):
            if not self._is_lost():
                taken = max(self._again_before, self._reading.position)
                self._write(self._reading.progress.cursor(taken=taken))

    def _enter(self) -> None:
        hold = open_hold(self.screen.name, self.directory, is_durable=self.is_durable)
        self._hold = self._held.enter_context(hold)
        self._held.callback(self._cursors.close)

    def _restore(self, cursor: Cursor) -> None:
        if cursor.taken is not None:
            self._again_before = cursor.taken
        elif self._cursors.path.exists():
            # The last reader was killed, and may have taken all that there is.
            self._again_before = _end_of_log(self.directory)
        self._reading = Reading.from_cursor(self.directory, cursor)
        self._memory.recall(self.directory, cursor, self.screen)
        for span in cursor.done:
            self._memory.learn(self.directory, (span.segment, span.start), span.end, self.screen)
        self._write(self._reading.progress.cursor())

    def _next_line(self, *, is_first: bool) -> Line | None:
        # Nothing may be read that another reader may have by now. A segment that is open already is ours.
        if self._reading.has_begun:
            line = self._reading.next_line()
            # Whoever has got something comes again: only who would get nothing must know whether it is still there.
            if line is not None or not is_first or not self._is_lost():
                return line
        if self._is_lost():
            self._recover()
        return self._reading.next_line()

    def _is_lost(self) -> bool:
        return self._hold is None or self._hold.is_lost() or self._reading.is_lost()

    def _recover(self) -> None:
        """Begin again in the mailbox that is there now. What was taken from the lost one cannot come again."""
        self.check_member()
        self._hold = None
        self._held.close()
        self._enter()
        self._reading.close()
        self._taken = {id_: [] for id_ in self._taken}
        self._again_before = (0, 0)
        numbers = segment_numbers(self.directory)
        self._reading = Reading.from_cursor(self.directory, Cursor(segment=numbers[0] if numbers else 1))
        self._write(self._reading.progress.cursor())

    def _sort(self, line: Line) -> Delivery | None:
        """Deliver a line, drop it or bury it, and go on behind it. Raises `OSError` if it cannot be buried."""
        envelope = self._read(line.content)
        self._reading.pass_line(line)
        if envelope is None:
            self._reading.progress.finish(line.span)
            self._has_news = True
            return None
        is_copy = envelope.id in self._taken
        # A copy is acknowledged with the first one: done before it, it would pass for the proof that both are.
        self._taken.setdefault(envelope.id, []).append(line.span)
        is_again = (line.span.segment, line.span.start) < self._again_before
        return None if is_copy else Delivery(envelope=envelope, is_again=is_again)

    def _read(self, content: bytes) -> Envelope | None:
        """The message in a line; None if there is no more to do about it. Raises `OSError` if it cannot be buried."""
        try:
            envelope = read_record(content)
        except EnvelopeCorrupt as exc:
            self.bury(self.screen.letter("corrupt", exc.reason, content))
            return None
        id_ = envelope.id
        if id_ in self._taken:
            return envelope
        # Before anything else: what the transcript has was believed once, and is no dead letter because it is old.
        if id_ in self._memory or id_ in self.seen:
            self._memory.remember(id_, is_taken=self._memory.has_taken(id_))
            return None
        if (death := self.screen.cause_of_death(envelope)) is not None:
            self.bury(self.screen.letter(*death, envelope.to_bytes(), envelope))
            return None
        return envelope

    def _settle(self, id_: MessageId) -> None:
        for span in self._taken.pop(id_):
            self._reading.progress.finish(span)
        self._memory.remember(id_, is_taken=True)

    def _take_cursor(self) -> Cursor:
        self._has_news = False
        return self._reading.progress.cursor()

    def _write(self, cursor: Cursor) -> None:
        # Never synced: if a power cut brings an older one back, mail comes again that the transcript knows.
        self._cursors.write(cursor)
        if cursor.segment != self._tidied:
            # One more is kept: it has the ids by which the next reader knows what came twice.
            for number in segment_numbers(self.directory):
                if number < cursor.segment - 1:
                    segment_path(self.directory, number).unlink(missing_ok=True)
            self._tidied = cursor.segment

    def _failed(self, exc: Exception) -> MailboxFailed:
        reason = (exc.strerror or str(exc)) if isinstance(exc, OSError) else str(exc)
        return MailboxFailed(self.screen.name, reason)

    def _check_open(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError(f"the inbox of {self.screen.name!r} is closed")


def _end_of_log(directory: Path) -> Position:
    numbers = segment_numbers(directory)
    return (numbers[-1], segment_path(directory, numbers[-1]).stat().st_size) if numbers else (0, 0)

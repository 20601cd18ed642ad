"""File transport: mail between processes. Each mailbox is an append-only log with many writers and one reader."""

import time
import weakref
from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import attrs
import trio

from coterie.clock import Clock
from coterie.files import frame_record
from coterie.mailbox.address import check_name
from coterie.mailbox.contract import Backlog, Inbox, Keys, MailLimits, Receipt, Roster, StoreDeadLetter
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.errors import MailboxFailed, MessageTooLarge, RecipientEnded
from coterie.mailbox.roster import find_member
from coterie.mailbox.transports.file.backlog_size import BacklogSize
from coterie.mailbox.transports.file.inbox import FileInbox
from coterie.mailbox.transports.file.log_reader import read_pending
from coterie.mailbox.transports.file.log_segments import SEGMENT_BYTES, segment_numbers, segment_path
from coterie.mailbox.transports.file.writer import MailboxWriter
from coterie.mailbox.validation import MessageDigest, MessageValidator

Durability = Literal["process", "power"]
"""Failures that stored mail survives: "process" means crashes of processes, "power" also means a power cut."""

PAUSE_EVERY = 0.01
"""Seconds after which a task that sends message after message lets other tasks of its process run."""
CLOSE_GRACE = 5.0
"""Seconds to wait for a free worker thread to close an inbox; a close that has begun is not interrupted."""


@attrs.define(eq=False)
class FileTransport:
    """Sends and delivers mail through files; each mailbox is a subdirectory of *directory*. Implements `Transport`.

    The limit of bytes counts stored records, which are slightly longer than messages. Files of mailboxes to which mail
    was sent stay open until `close`, or until this object is garbage-collected.
    """

    directory: Path
    roster: Roster
    keys: Keys | None
    """Keys for checking the MAC (signature) of messages that are read; None if MACs are not checked."""
    clock: Clock
    store_dead_letter: StoreDeadLetter
    limits: MailLimits = attrs.field(factory=MailLimits)
    durability: Durability = "process"
    segment_bytes: int = SEGMENT_BYTES
    trusted: dict[str, frozenset[MessageDigest]] = attrs.field(factory=dict)
    """Maps a mailbox name to digests of messages accepted without a MAC (signature); used when an inbox is opened."""
    _writers: dict[str, MailboxWriter] = attrs.field(factory=dict, init=False)
    _next_pause: float = attrs.field(default=0.0, init=False)
    _finalizer: Callable[[], object] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._finalizer = weakref.finalize(self, _close_all, self._writers)

    async def send(self, envelope: Envelope) -> Receipt:
        """Store the message *envelope* in its recipient's mailbox, as `Transport.send`; return a receipt.

        When this returns, the message is in the log file; with durability "power", it also survives a power cut.
        """
        # A checkpoint costs half as much as a message, so messages sent in quick succession share one.
        if time.monotonic() < self._next_pause:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
            self._next_pause = time.monotonic() + PAUSE_EVERY
        name, content = envelope.recipient.name, envelope.to_bytes()
        member = find_member(self.roster, name)
        if member.state == "ended":
            raise RecipientEnded(name, member.incarnation)
        if len(content) > self.limits.message_bytes:
            raise MessageTooLarge(len(content), self.limits.message_bytes)
        writer = self._writers.get(name)
        if writer is None:
            self._writers[name] = writer = MailboxWriter(
                name=name,
                directory=self._mailbox(name),
                limits=self.limits,
                segment_bytes=self.segment_bytes,
                is_durable=self.durability == "power",
            )
        await writer.append(frame_record(content))
        return Receipt(id=envelope.id, recipient=name, transport="file", stored=self.clock.now())

    @asynccontextmanager
    async def open_inbox(self, name: str, incarnation: int, *, seen: Container[MessageId] = ()) -> AsyncIterator[Inbox]:
        """Open the mailbox of *name* for reading, as `Transport.open_inbox`. A kill of this process unlocks it."""
        find_member(self.roster, name)
        trusted = self.trusted.get(name, frozenset())
        inbox = FileInbox(
            directory=self._mailbox(name),
            seen=seen,
            validator=MessageValidator(
                name=name, incarnation=incarnation, keys=self.keys, clock=self.clock, trusted=trusted
            ),
            store_dead_letter=self.store_dead_letter,
            is_durable=self.durability == "power",
            check_member=partial(find_member, self.roster, name),
        )
        await trio.to_thread.run_sync(inbox.open_sync)
        try:
            yield inbox
        finally:
            with trio.move_on_after(CLOSE_GRACE, shield=True):
                await trio.to_thread.run_sync(inbox.close_sync)

    def backlog(self, name: str) -> Backlog:
        """Measure the unacknowledged mail of *name*, as `Transport.backlog`. Blocks, because it reads all this mail."""
        find_member(self.roster, name)
        directory = self._mailbox(name)
        try:
            numbers = segment_numbers(directory)
            if not numbers:
                return Backlog(messages=0, bytes=0, oldest=None)
            backlog_size = BacklogSize(directory)
            backlog_size.refresh()
            last, size = numbers[-1], segment_path(directory, numbers[-1]).stat().st_size
            messages = backlog_size.messages(last, size)
            oldest = next((envelope.created for envelope in read_pending(directory)), None) if messages else None
            return Backlog(messages=messages, bytes=backlog_size.bytes(last, size), oldest=oldest)
        except OSError as exc:
            raise MailboxFailed(name, f"cannot be read: {exc.strerror}; check the permissions of {directory}") from exc

    def close(self) -> None:
        """Close the files of all mailboxes to which mail was sent. Files that a later `send` opens are not closed."""
        self._finalizer()

    def _mailbox(self, name: str) -> Path:
        return self.directory / check_name(name)


def _close_all(writers: dict[str, MailboxWriter]) -> None:
    for writer in writers.values():
        writer.close()
    writers.clear()

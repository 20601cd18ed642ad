"""The file mailbox through its public API: envelopes are written, signed, stored, checked and acknowledged."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs

from benchmarks.mail_peers.default_fill import send_each
from benchmarks.mail_peers.peer import BATCH, Box, Peer
from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter, Inbox, MailLimits
from coterie.mailbox.envelope import Envelope, MessageId, Recipient, Sender, sign_new
from coterie.mailbox.roster import FileRoster
from coterie.mailbox.transports.file.transport import Durability, FileTransport

_ROOMY = MailLimits(messages=10**6, bytes=4 * 1024**3)
KEY = b"benchmark"
_PATIENCE = 30.0
"""Seconds for filling the mailbox, because the cost of the largest backlog is to be measured."""


class _OneKey:
    def key_of(self, _sender: Sender) -> bytes:
        return KEY


def _refuse_dead_letter(letter: DeadLetter) -> None:
    raise AssertionError(letter)


@attrs.define(eq=False)
class Author:
    """Writes signed envelopes to one recipient."""

    sender: Sender
    recipient: Recipient
    _clock: Clock = attrs.field(factory=Clock)
    _sequence: int = 0

    @classmethod
    def with_number(cls, writer: int, box: Box) -> "Author":
        """Return the sender for a writer of this number."""
        sender = Sender(name=f"writer-{writer}", incarnation=1, session="benchmark", kind="peer")
        return cls(sender, Recipient(name=box))

    def write(self, body: str) -> Envelope:
        """Return the next message."""
        self._sequence += 1
        envelope = Envelope(
            sender=self.sender,
            recipient=self.recipient,
            sequence=self._sequence,
            body=body,
            created=self._clock.now(),
        )
        return sign_new(envelope, KEY)


@attrs.frozen
class _FileMailboxes:
    directory: Path
    durability: Durability

    @asynccontextmanager
    async def open_sender(self, box: Box, writer: int) -> AsyncIterator["_Sending"]:
        transport = self._transport()
        try:
            yield _Sending(transport, Author.with_number(writer, box))
        finally:
            transport.close()

    @asynccontextmanager
    async def open_receiver(self, box: Box) -> AsyncIterator["_Receiving"]:
        async with self._transport().open_inbox(box, 1) as inbox:
            yield _Receiving(inbox)

    async def fill(self, box: Box, bodies: Sequence[str]) -> int:
        # The files are the same in both classes; only the waiting differs.
        return await send_each(attrs.evolve(self, durability="process"), box, bodies, _PATIENCE)

    def _transport(self) -> FileTransport:
        roster = FileRoster(self.directory / "roster.json")
        return FileTransport(
            self.directory / "mail", roster, _OneKey(), Clock(), _refuse_dead_letter, _ROOMY, self.durability
        )


@attrs.define(eq=False)
class _Sending:
    _transport: FileTransport
    _author: Author

    async def send(self, body: str) -> None:
        await self._transport.send(self._author.write(body))


@attrs.define(eq=False)
class _Receiving:
    _inbox: Inbox
    _ids: list[MessageId] = attrs.field(factory=list)

    async def receive(self, limit: int = BATCH) -> list[str]:
        while not (deliveries := self._inbox.take_nowait(limit)):
            await self._inbox.wait()
        self._ids += [delivery.envelope.id for delivery in deliveries]
        return [delivery.envelope.body for delivery in deliveries]

    async def acknowledge(self) -> None:
        await self._inbox.acknowledge(self._ids)
        self._ids.clear()


@asynccontextmanager
async def _open_mailboxes(durability: Durability, directory: Path) -> AsyncIterator[_FileMailboxes]:
    roster = FileRoster(directory / "roster.json")
    await roster.join("left")
    await roster.join("right")
    yield _FileMailboxes(directory, durability)


_PROMISES = "order per sender, acknowledged, roster checked, signed, wakes the reader"

OURS_PROCESS = Peer(
    name="ours, process",
    survives="kill -9",
    promises=_PROMISES,
    open_post=partial(_open_mailboxes, "process"),
)
OURS_POWER = Peer(
    name="ours, power",
    survives="power cut",
    promises=_PROMISES,
    open_post=partial(_open_mailboxes, "power"),
)

"""Wrapper that makes another peer carry signed envelopes, which its reader verifies."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import attrs

from benchmarks.mail_peers.coterie_file import KEY, Author
from benchmarks.mail_peers.peer import BATCH, Box, Mailboxes, Peer, ReceivingEnd, SendingEnd
from coterie.mailbox.envelope import Envelope


@attrs.define(eq=False)
class _Sending:
    _inner: SendingEnd
    _author: Author

    async def send(self, body: str) -> None:
        await self._inner.send(self._author.write(body).to_bytes().decode())


@attrs.define(eq=False)
class _Receiving:
    _inner: ReceivingEnd

    async def receive(self, limit: int = BATCH) -> list[str]:
        envelopes = [Envelope.from_bytes(text.encode()) for text in await self._inner.receive(limit)]
        assert all(envelope.is_signed_with(KEY) for envelope in envelopes)
        return [envelope.body for envelope in envelopes]

    async def acknowledge(self) -> None:
        await self._inner.acknowledge()


@attrs.frozen
class _EnvelopedMailboxes:
    inner: Mailboxes

    @asynccontextmanager
    async def open_sender(self, box: Box, writer: int) -> AsyncIterator[_Sending]:
        async with self.inner.open_sender(box, writer) as sender:
            yield _Sending(sender, Author.with_number(writer, box))

    @asynccontextmanager
    async def open_receiver(self, box: Box) -> AsyncIterator[_Receiving]:
        async with self.inner.open_receiver(box) as receiver:
            yield _Receiving(receiver)

    async def fill(self, box: Box, bodies: Sequence[str]) -> int:
        author = Author.with_number(0, box)
        return await self.inner.fill(box, [author.write(body).to_bytes().decode() for body in bodies])


@asynccontextmanager
async def _open_mailboxes(peer: Peer, directory: Path) -> AsyncIterator[_EnvelopedMailboxes]:
    inner: AbstractAsyncContextManager[Mailboxes] = peer.open_post(directory)
    async with inner as post:
        yield _EnvelopedMailboxes(post)


def enveloped(peer: Peer) -> Peer:
    """Return *peer* with the same messages as Coterie."""
    return attrs.evolve(
        peer,
        name=f"{peer.name}, our mail",
        promises=f"the same, with envelopes signed and verified: {peer.promises}",
        open_post=partial(_open_mailboxes, peer),
    )

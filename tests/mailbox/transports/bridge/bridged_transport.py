"""A transport that sends every message over a real socket into another session."""

import tempfile
from collections.abc import AsyncIterator, Container
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import attrs
import pytest

from coterie.mailbox.address import Socket
from coterie.mailbox.conformance.harness import OpenTransportFactory, Tampering, TransportFactory, TransportParts
from coterie.mailbox.contract import Backlog, Inbox, Receipt, Transport
from coterie.mailbox.envelope import Envelope, MessageId, new_message_id
from coterie.mailbox.transports.bridge.listener import AcceptPolicy, DeliverInbound, open_bridge
from coterie.mailbox.transports.bridge.transport import BridgeTransport

SENDER = "conformance"
"""Session from which the members of the suite send."""
OPEN = AcceptPolicy(policy="accept", per_minute=6e6, burst=1_000_000, repeat_window=0)


@attrs.define(eq=False)
class BridgedTransport:
    """Transport that sends over the socket at *address* and reads in the session that listens there."""

    sending: BridgeTransport
    receiving: Transport
    address: Socket

    async def send(self, envelope: Envelope) -> Receipt:
        """As `Transport.send`."""
        return await self.sending.send(envelope, self.address)

    def open_inbox(
        self, name: str, incarnation: int, *, seen: Container[MessageId] = ()
    ) -> AbstractAsyncContextManager[Inbox]:
        """As `Transport.open_inbox`, on the other side."""
        return self.receiving.open_inbox(name, incarnation, seen=seen)

    def backlog(self, name: str) -> Backlog:
        """As `Transport.backlog`, on the other side."""
        return self.receiving.backlog(name)


@attrs.define(eq=False)
class BridgedPlace:
    """A sending and a receiving session; *behind* is the storage of the receiving one."""

    directory: Path
    behind: TransportFactory
    session: str = attrs.field(factory=lambda: f"receiver-{new_message_id()}")
    has_macs = False

    @property
    def tampering(self) -> Tampering | None:
        """As `TransportFactory.tampering`, in the receiving session."""
        return self.behind.tampering

    @asynccontextmanager
    async def open_transport(self, parts: TransportParts) -> AsyncIterator[Transport]:
        """Open the bridge and the transport behind it."""
        sending = BridgeTransport(SENDER, self.directory / "sender", parts.clock, parts.store_dead_letter)
        mail = self.directory / "receiver"
        async with self.behind.open_transport(parts) as receiving:
            deliver = _signing(receiving, parts)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("XDG_RUNTIME_DIR", str(self.directory))
                bridge = open_bridge(
                    self.session, mail, deliver, clock=parts.clock, bury=parts.store_dead_letter, terms=OPEN
                )
                async with bridge as path:
                    yield BridgedTransport(sending, receiving, Socket(path))


@asynccontextmanager
async def open_bridged_place(open_behind: OpenTransportFactory) -> AsyncIterator[BridgedPlace]:
    """Open empty storage in front of another one; its path is short, because socket paths are limited."""
    with tempfile.TemporaryDirectory(prefix="bridge-") as directory:
        async with open_behind() as behind:
            yield BridgedPlace(Path(directory), behind)


def _signing(transport: Transport, parts: TransportParts) -> DeliverInbound:
    async def deliver(envelope: Envelope) -> Receipt:
        key = parts.keys.key_of(envelope.sender)
        return await transport.send(envelope if key is None else envelope.sign(key))

    return deliver

"""Two sessions in one process: one sends mail, and the other receives it over a real socket."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import attrs
import trio

from coterie.clock import Clock
from coterie.mailbox.address import OtherSession, Socket
from coterie.mailbox.contract import BridgeReceipt, DeadLetter, MailLimits, Receipt
from coterie.mailbox.envelope import Envelope, MessageKind, Recipient, Sender
from coterie.mailbox.errors import MailboxFailed, SendRefused
from coterie.mailbox.transports.bridge.held_mail import HeldMail
from coterie.mailbox.transports.bridge.listener import AcceptPolicy, open_bridge
from coterie.mailbox.transports.bridge.transport import BridgeTransport

ACCEPT = AcceptPolicy(policy="accept", repeat_window=0, burst=1000)
HOME = OtherSession("home")
TRUE_SENDER = Sender(name="alice", incarnation=1, session="away", kind="peer")


@attrs.define(eq=False)
class Two:
    """Session `home`, which receives mail, and session `away`, which sends to it."""

    root: Path
    clock: Clock = attrs.field(factory=Clock)
    delivered: list[Envelope] = attrs.field(factory=list)
    has_delivered: trio.Event = attrs.field(factory=trio.Event)
    dead: list[DeadLetter] = attrs.field(factory=list)
    error: SendRefused | MailboxFailed | None = None
    """Error that the transport of `home` raises for every message."""
    sequence: int = 0

    def open(self, terms: AcceptPolicy = ACCEPT, session: str = "home") -> AbstractAsyncContextManager[Path]:
        """Start the listener of *session*."""
        return open_bridge(
            session, self.root / session, self.deliver, clock=self.clock, bury=self.dead.append, terms=terms
        )

    async def deliver(self, envelope: Envelope) -> Receipt:
        """Deliver as a transport: drop messages with known ids."""
        if self.error is not None:
            raise self.error
        if all(envelope.id != known.id for known in self.delivered):
            self.delivered.append(envelope)
            self.has_delivered.set()
        return Receipt(id=envelope.id, recipient=envelope.recipient.name, transport="queue", stored=self.clock.now())

    def sending(self, *, limits: MailLimits | None = None, patience: float = 5.0) -> BridgeTransport:
        """Return a sender of `away`, as a new process would open it."""
        return BridgeTransport(
            "away", self.root / "away", self.clock, self.dead.append, limits=limits or MailLimits(), patience=patience
        )

    async def send(self, *bodies: str, to: OtherSession | Socket = HOME) -> list[BridgeReceipt]:
        """Send new messages from `away`."""
        return [await self.sending().send(self.write(body), to) for body in bodies]

    def held(self) -> HeldMail:
        """Return the held messages of `home`."""
        return HeldMail.of(self.root / "home", self.clock, self.dead.append)

    def write(self, body: str = "hello", *, kind: MessageKind = "message", expires: float | None = None) -> Envelope:
        """Build a message with false claims about its sender."""
        self.sequence += 1
        return Envelope(
            sender=Sender(name="alice", incarnation=1, session="a lie", kind="human"),
            recipient=Recipient(name="main"),
            sequence=self.sequence,
            kind=kind,
            body=body,
            created=self.clock.now(),
            expires=expires,
            mac="00",
        )

    @property
    def bodies(self) -> list[str]:
        """Return the delivered bodies in order."""
        return [envelope.body for envelope in self.delivered]

"""Routing of messages: inside the process, through files, to another session, or to the root (supervisor process)."""

from collections.abc import Set as AbstractSet
from typing import Protocol

import attrs

from coterie.clock import Clock
from coterie.mailbox.address import MAIN, Address, Everyone, OtherSession, Socket, parse_address
from coterie.mailbox.contract import Keys, Receipt, Roster, Transport
from coterie.mailbox.envelope import Envelope, MessageId, MessageKind, Recipient, Sender, new_message_id, sign_new
from coterie.mailbox.errors import BridgeRefused, NotAllowed, SendRefused
from coterie.mailbox.message_bodies import BODIES
from coterie.mailbox.policy import ANSWERS, AUTHORITY, REFERRED, SENDERS

TIME_TO_LIVE = 7 * 24 * 3600.0
"""Default time to live of a message: seconds after its creation at which it expires if it is not delivered."""


class BridgePort(Protocol):
    """Interface through which the router sends messages to other sessions."""

    async def send(self, envelope: Envelope, address: Socket | OtherSession) -> Receipt:
        """Hand *envelope* to the session at *address*, for its lead (first agent). Raises `SendRefused`.

        If that session does not listen, store the message in the outbox of this session.
        """
        ...


class AuthorityPort(Protocol):
    """Interface through which the router sends messages to the root (supervisor process), over one agent's socket.

    These are the messages that stop the recipient or grant it something, which must not travel through files.
    """

    async def send(self, envelope: Envelope) -> Receipt:
        """Return when the root (supervisor process) has obeyed *envelope*. Raises `SendRefused` if the root rejects it.

        After a cancellation it is unknown if the root obeys the message.
        """
        ...


@attrs.frozen(kw_only=True)
class OutgoingMessage:
    """A message to send, before the router adds the sender, the sequence number and the signature."""

    to: str
    """Address, in the syntax of `parse_address`."""
    body: str
    kind: MessageKind = "message"
    summary: str | None = None
    in_reply_to: MessageId | None = None
    traceparent: str | None = None
    time_to_live: float | None = TIME_TO_LIVE
    id: MessageId | None = None
    """Id of a message that must arrive once although several processes may send it; None: a new id per recipient."""


@attrs.frozen(kw_only=True)
class SendResult:
    """Result of sending a message to one recipient: either a receipt or a refusal."""

    recipient: str
    receipt: Receipt | None = None
    refusal: SendRefused | None = None


@attrs.define(eq=False)
class Router:
    """Sends messages for the agents of one process, each message by the transport that reaches its recipient.

    A recipient gets the messages of one sender in the order of sending. Messages that are sent at the same time have no
    order.
    """

    roster: Roster
    keys: Keys | None
    """Source of the senders' keys, with which messages are signed; None: messages are not signed."""
    local: Transport
    """Transport for recipients that are tasks of this process, and for all members if `files` is None."""
    files: Transport | None = None
    """Transport for members of the session in other processes; None if there are none."""
    bridge: BridgePort | None = None
    clock: Clock = attrs.field(factory=Clock)
    local_names: AbstractSet[str] = frozenset()
    """Names of the agents that are tasks of this process; the caller may change the set."""
    authority: AuthorityPort | None = None
    """Connection to the root (supervisor) of the one agent that uses this router; None in the root and the CLI."""
    _sequences: dict[tuple[str, int, str], int] = attrs.field(factory=dict, init=False)

    @property
    def has_sent(self) -> bool:
        """True if any message has passed the checks of this router, even if the transport then rejected it."""
        return bool(self._sequences)

    async def send(self, sender: Sender, draft: OutgoingMessage) -> list[SendResult]:
        """Send *draft* to each of its recipients, in one envelope each, and return a result for each recipient.

        If a broadcast is rejected for one recipient, its result has the refusal, and the other recipients still get the
        message. For a single recipient `SendRefused` is raised. Raises `MailboxFailed` if storing failed.
        """
        address = parse_address(draft.to)
        if isinstance(address, Everyone):
            return await self._broadcast(sender, draft)
        name = address if isinstance(address, str) else MAIN
        return [SendResult(recipient=draft.to, receipt=await self._send_one(sender, name, draft, address))]

    async def _broadcast(self, sender: Sender, draft: OutgoingMessage) -> list[SendResult]:
        group = new_message_id()
        members = [m.name for m in self.roster.members().values() if m.name != sender.name and m.state != "ended"]
        results: list[SendResult] = []
        for name in members:
            try:
                receipt = await self._send_one(sender, name, draft, Everyone(), group)
                results.append(SendResult(recipient=name, receipt=receipt))
            except SendRefused as exc:
                results.append(SendResult(recipient=name, refusal=exc))
        return results

    async def _send_one(
        self, sender: Sender, name: str, draft: OutgoingMessage, address: Address, group: str | None = None
    ) -> Receipt:
        self._check_allowed(sender, name, draft, address)
        envelope = self._envelope(sender, name, draft, group)
        if isinstance(address, Socket | OtherSession):
            if self.bridge is None:
                raise BridgeRefused(draft.to, "this session has no bridge to other sessions; write to its own agents")
            return await self.bridge.send(envelope, address)
        return await self._select_transport(sender, name, draft.kind).send(envelope)

    def _check_allowed(self, sender: Sender, name: str, draft: OutgoingMessage, address: Address) -> None:
        """Raise `NotAllowed` unless *sender* may send *draft* to *name*, and the body of *draft* is valid for its kind.

        *address* is the address that the sender used.
        """

        def refusal(reason: str) -> NotAllowed:
            return NotAllowed(sender.name, name, draft.kind, reason)

        if draft.kind == "message":
            return
        allowed = SENDERS[draft.kind]
        # The root decides if the sender of such a message is allowed.
        is_referred = draft.kind in REFERRED and self.authority is not None
        if sender.kind not in allowed and not is_referred:
            raise refusal(f"only {' or '.join(sorted(allowed))} may send {draft.kind}; send plain text instead")
        if not isinstance(address, str):
            raise refusal(f"{draft.kind} must be addressed to one agent of this session; give its name as recipient")
        if draft.kind in ANSWERS and draft.in_reply_to is None:
            raise refusal(f"{draft.kind} must name the request that it answers; add the id of the request")
        if name == sender.name and not is_referred:
            raise refusal(f"an agent cannot send {draft.kind} to itself; name another agent as recipient")
        try:
            BODIES[draft.kind].from_body(draft.body)
        except ValueError as exc:
            raise refusal(f"the body of the message is not a valid {draft.kind}; correct it: {exc}") from exc

    def _select_transport(self, sender: Sender, name: str, kind: MessageKind) -> Transport | AuthorityPort:
        if self.authority is not None and kind in REFERRED:
            return self.authority
        if name in self.local_names or self.files is None:
            return self.local
        if self.authority is not None and kind in AUTHORITY:
            return self.authority
        if kind in AUTHORITY:
            reason = f"{kind} cannot be sent to an agent in another process; send plain text instead"
            raise NotAllowed(sender=sender.name, recipient=name, kind=kind, reason=reason)
        return self.files

    def _envelope(self, sender: Sender, name: str, draft: OutgoingMessage, group: str | None) -> Envelope:
        now = self.clock.now()
        member = self.roster.members().get(name)
        # Authority applies to this incarnation only; text may reach the next one.
        fence = member.incarnation if member is not None and draft.kind in AUTHORITY else None
        key = (sender.name, sender.incarnation, name)
        self._sequences[key] = sequence = self._sequences.get(key, 0) + 1
        envelope = Envelope(
            sender=sender,
            recipient=Recipient(name=name, incarnation=fence),
            sequence=sequence,
            kind=draft.kind,
            body=draft.body,
            summary=draft.summary,
            in_reply_to=draft.in_reply_to,
            group=group,
            created=now,
            expires=None if draft.time_to_live is None else now + draft.time_to_live,
            traceparent=draft.traceparent,
            id=draft.id or new_message_id(),
        )
        secret = None if self.keys is None else self.keys.key_of(sender)
        return envelope if secret is None else sign_new(envelope, secret)

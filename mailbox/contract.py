"""Contract that every mail transport must keep. `docs/mail.md` lists its promises, and `conformance` tests them.

A message is stored, then delivered to the reader of the mailbox, then acknowledged by the reader. A receipt means that
the message is stored; how long it is kept depends on the transport. Messages of one sender are delivered in the order
of sending. After a crash they are delivered again until they are acknowledged. The reader acknowledges a message once
the message is in its transcript. When the reader opens its mailbox, it passes the ids of the messages in its
transcript, which are not delivered again. A message that cannot be delivered is kept as a dead letter with a reason.
"""

from collections.abc import Callable, Collection, Container, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

import attrs

from coterie.mailbox.envelope import Envelope, MessageId, Sender

MemberState = Literal["running", "idle", "ended"]
DeadReason = Literal["corrupt", "expired", "stale_incarnation", "bad_mac", "recipient_ended", "refused"]


@attrs.frozen(kw_only=True)
class MailLimits:
    """Limits of one mailbox: number and total bytes of pending messages, and bytes of one message."""

    messages: int = 10_000
    bytes: int = 64 * 1024 * 1024
    message_bytes: int = 1024 * 1024
    """Largest encoded envelope, in bytes."""


@attrs.frozen(kw_only=True)
class MemberOrigin:
    """Agent type, parent and task of a member of the session, as the roster keeps them."""

    kind: str | None = None
    """Agent type, such as `reviewer`, or `fork` for a fork of its parent; None for an agent without a definition."""
    parent: str | None = None
    """Name of the agent that spawned this one; None if the user started it."""
    task: str = ""
    """Task of the agent, on one line, and shortened if it is long."""


@attrs.frozen(kw_only=True)
class Member:
    """A member of the session: an agent that can receive mail."""

    name: str
    incarnation: int
    state: MemberState = "running"
    engagement: MemberOrigin = attrs.field(factory=MemberOrigin)


class Roster(Protocol):
    """The members of a session.

    A transport calls `members` for every message, so the call must not read a file that has not changed.
    """

    def members(self) -> Mapping[str, Member]:
        """Return all members by name."""
        ...


class Keys(Protocol):
    """Keys with which the members of a session sign their mail.

    They are passed to processes over sockets, never in files or the environment.
    """

    def key_of(self, sender: Sender) -> bytes | None:
        """Return the key of this incarnation (start) of *sender*; None if unknown: its messages become dead letters."""
        ...


@attrs.frozen(kw_only=True)
class Receipt:
    """Receipt that the sender of a message gets when it is stored, or when the root (supervisor) has obeyed it."""

    id: MessageId
    recipient: str
    transport: Literal["queue", "file", "bridge", "control"]
    """queue: in memory; file: in a log file; bridge: for another session; control: the root (supervisor) obeyed it."""
    stored: float
    """Time of storing (for `control`: time of creation), in seconds since 1970."""


BridgeState = Literal["accepted", "held", "waiting"]


@attrs.frozen(kw_only=True)
class BridgeReceipt(Receipt):
    """Receipt of a message to another session.

    If that session got the same text from the same sender before, it drops the new copy, and `id` is that of the first.
    """

    state: BridgeState
    """accepted: in the mailbox; held: until that session's user releases it; waiting: in the sender's outbox."""


@attrs.frozen(kw_only=True)
class Delivery:
    """A message as `Inbox.take_nowait` returns it. The reader must acknowledge it."""

    envelope: Envelope
    is_again: bool = False
    """True if an earlier reader may have received the message: that reader ended without acknowledging it."""


@attrs.frozen(kw_only=True)
class DeadLetter:
    """A message that cannot be delivered, or stored bytes that are not a valid message, with the reason."""

    reason: DeadReason
    detail: str
    mailbox: str
    """Name of the mailbox with the message; for mail to another session, its address; for held mail, `held`."""
    at: float
    envelope: Envelope | None
    raw: bytes
    """Bytes as stored; for a valid message, its encoded envelope."""

    @classmethod
    def of(cls, envelope: Envelope, reason: DeadReason, detail: str, mailbox: str, at: float) -> "DeadLetter":
        """Return the dead letter of *envelope*, a valid, undeliverable message in *mailbox*; *at* is the time now."""
        return cls(reason=reason, detail=detail, mailbox=mailbox, at=at, envelope=envelope, raw=envelope.to_bytes())


StoreDeadLetter = Callable[[DeadLetter], None]
"""Function that stores a dead letter before it returns. Raises `OSError` if it cannot."""


@attrs.frozen(kw_only=True)
class Backlog:
    """Number, bytes and oldest creation time of the unacknowledged messages in one mailbox."""

    messages: int
    bytes: int
    oldest: float | None
    """Creation time, in seconds since 1970, of the oldest message that can be decoded; None if there is none."""


class Inbox(Protocol):
    """Reading end of one mailbox. Only one reader at a time can have it open."""

    def take_nowait(self, limit: int | None = None) -> list[Delivery]:
        """Return pending messages that this inbox has not returned before, oldest first, at most *limit* (None: all).

        Messages that are expired, forged, corrupt or for another incarnation become dead letters instead. Messages that
        are in the reader's transcript count as acknowledged and are left out. Raises `MailboxFailed`.
        """
        ...

    async def wait(self) -> None:
        """Return when `take_nowait` may have a message. May return too early, but never misses a message."""
        ...

    async def acknowledge(self, ids: Collection[MessageId]) -> None:
        """Return when the messages *ids* are certain not to be delivered again, even after a process crash. Idempotent.

        Raises `ValueError` for an id that was not taken from this inbox, and `MailboxFailed`.
        """
        ...


class Transport(Protocol):
    """Stores messages in mailboxes and delivers them.

    Read positions, acknowledgements and redelivery belong to the transport, so that one over a network is possible.
    """

    async def send(self, envelope: Envelope) -> Receipt:
        """Store *envelope* for its recipient, behind earlier messages of the same sender.

        Raises `SendRefused` if the message is rejected, and `MailboxFailed` if storing failed. After `MailboxFailed`
        the sender may retry with the same id: the recipient gets the message once. Cancellation stores the message
        whole or not at all.
        """
        ...

    def open_inbox(
        self, name: str, incarnation: int, *, seen: Container[MessageId] = ()
    ) -> AbstractAsyncContextManager[Inbox]:
        """Open the mailbox of *name* for reading, as this *incarnation* (start) of the agent.

        *seen* contains the ids of the messages in the agent's transcript, which are not delivered again. Raises
        `MailboxBusy` while the mailbox has another reader, `NameInvalid`, `UnknownRecipient` and `MailboxFailed`.
        """
        ...

    def backlog(self, name: str) -> Backlog:
        """Return number, bytes and oldest creation time of the unacknowledged messages in the mailbox of *name*.

        Raises `NameInvalid`, `UnknownRecipient` and `MailboxFailed`.
        """
        ...

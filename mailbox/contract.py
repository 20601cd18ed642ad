"""Contract of every mail transport; `docs/mail.md` numbers the promises, `conformance` tests them.

A message is stored, then delivered, then acknowledged. A receipt means stored: the message lives as long as its
transport says, which for most transports is longer than any process. Messages of one sender are delivered in the
order of sending, and redelivered after a crash until they are acknowledged. The reader acknowledges a message once
the message is in the transcript; when it opens its inbox it passes the ids that the transcript has. A message that
cannot be delivered becomes a dead letter with its reason.
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
    """Limits of one mailbox: pending messages, their bytes, and the size of one message."""

    messages: int = 10_000
    bytes: int = 64 * 1024 * 1024
    message_bytes: int = 1024 * 1024
    """Largest encoded envelope, in bytes."""


@attrs.frozen(kw_only=True)
class MemberOrigin:
    """Agent type, parent and task of a member, kept in the roster."""

    kind: str | None = None
    """Agent type; None for an agent without a definition."""
    parent: str | None = None
    """Name of the agent that spawned this one; None if the user started it."""
    task: str = ""
    """First task of the agent, on one line."""


@attrs.frozen(kw_only=True)
class Member:
    """A member of the session: an agent that can receive mail."""

    name: str
    incarnation: int
    state: MemberState = "running"
    engagement: MemberOrigin = attrs.field(factory=MemberOrigin)


class Roster(Protocol):
    """Members of a session. Asked for every message, so it must answer from memory while nothing has changed."""

    def members(self) -> Mapping[str, Member]:
        """Return all members by name."""
        ...


class Keys(Protocol):
    """Keys with which members sign their mail; they travel over sockets, never in files or the environment."""

    def key_of(self, sender: Sender) -> bytes | None:
        """Return the key of this incarnation of the sender; None if it has none, and then its mail is rejected."""
        ...


@attrs.frozen(kw_only=True)
class Receipt:
    """Receipt of a stored message."""

    id: MessageId
    recipient: str
    transport: Literal["queue", "file", "bridge", "control"]
    """`control` means: the root received the message on a socket and has acted on it."""
    stored: float
    """Time of storing, in seconds since 1970."""


BridgeState = Literal["accepted", "held", "waiting"]


@attrs.frozen(kw_only=True)
class BridgeReceipt(Receipt):
    """Receipt of a message for another session; `id` is that of the first copy if the peer dropped a repeat."""

    state: BridgeState
    """accepted: in the recipient's mailbox; held: waits for the user there; waiting: in the outbox of this session."""


@attrs.frozen(kw_only=True)
class Delivery:
    """A message that was given to the reader and that the reader must acknowledge."""

    envelope: Envelope
    is_again: bool = False
    """True if an earlier reader may have received the message: that reader ended without acknowledging it."""


@attrs.frozen(kw_only=True)
class DeadLetter:
    """A message that cannot be delivered, or bytes that are not a valid message."""

    reason: DeadReason
    detail: str
    mailbox: str
    """Name of the mailbox that held the message."""
    at: float
    envelope: Envelope | None
    raw: bytes
    """Bytes as stored; for a valid message, its encoded envelope."""

    @classmethod
    def of(cls, envelope: Envelope, reason: DeadReason, detail: str, mailbox: str, at: float) -> "DeadLetter":
        """Build the dead letter of a valid message."""
        return cls(reason=reason, detail=detail, mailbox=mailbox, at=at, envelope=envelope, raw=envelope.to_bytes())


StoreDeadLetter = Callable[[DeadLetter], None]
"""Function that stores a dead letter before it returns. Raises `OSError` if it cannot."""


@attrs.frozen(kw_only=True)
class Backlog:
    """Size of the unacknowledged mail in one mailbox."""

    messages: int
    bytes: int
    oldest: float | None
    """Creation time of the oldest message; None if the mailbox is empty."""


class Inbox(Protocol):
    """Reading end of one mailbox; one reader at a time holds it."""

    def take_nowait(self, limit: int | None = None) -> list[Delivery]:
        """Return pending messages that were not taken from this inbox before, oldest first, at most *limit*.

        Expired, forged, corrupt and stale messages become dead letters. Messages that the transcript has are
        acknowledged and left out. Raises `MailboxFailed`.
        """
        ...

    async def wait(self) -> None:
        """Return when `take_nowait` may have a message. May return too early, but misses no message."""
        ...

    async def acknowledge(self, ids: Collection[MessageId]) -> None:
        """Return when these messages are certain not to be delivered again, even after a crash. Idempotent.

        Raises `ValueError` for an id that was not taken from this inbox, and `MailboxFailed`.
        """
        ...


class Transport(Protocol):
    """Transport of mail. It owns position, acknowledgement and redelivery, so a network transport fits too."""

    async def send(self, envelope: Envelope) -> Receipt:
        """Store *envelope* for its recipient, behind earlier messages of the same sender.

        Raises `SendRefused` if the message is rejected, and `MailboxFailed` if storing failed; then the message is not
        stored, or a retry is dropped by its id. Cancellation stores the message whole or not at all.
        """
        ...

    def open_inbox(
        self, name: str, incarnation: int, *, seen: Container[MessageId] = ()
    ) -> AbstractAsyncContextManager[Inbox]:
        """Open the mailbox of *name* for this incarnation; *seen* holds the ids that its transcript has.

        Raises `MailboxBusy` while the mailbox has another reader, `NameInvalid`, `UnknownRecipient` and
        `MailboxFailed`.
        """
        ...

    def backlog(self, name: str) -> Backlog:
        """Return the backlog of *name*. Raises `NameInvalid`, `UnknownRecipient` and `MailboxFailed`."""
        ...

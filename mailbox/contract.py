"""What every transport of mail promises; `docs/mail.md` numbers the promises, `conformance` tests them.

stored -> delivered -> acknowledged. A receipt means stored: the message lives as long as its transport says, which for
most is longer than any process. It is delivered in the order in which its sender sent it, and again after a crash,
until it is acknowledged; whoever takes it acknowledges it once it is in the transcript, and says at the next start
which ids the transcript has. What cannot be delivered becomes a dead letter with its reason.
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
    """How much mail may wait, and how much one message may hold."""

    messages: int = 10_000
    bytes: int = 64 * 1024 * 1024
    message_bytes: int = 1024 * 1024
    """Of one envelope, as bytes."""


@attrs.frozen(kw_only=True)
class MemberOrigin:
    """What somebody was started for, so that nobody has to remember it."""

    kind: str | None = None
    """Which kind of agent it is; None for no kind of its own."""
    parent: str | None = None
    """Who started it; None for the human."""
    task: str = ""
    """The task it began with, in a line."""


@attrs.frozen(kw_only=True)
class Member:
    """Somebody who can get mail."""

    name: str
    incarnation: int
    state: MemberState = "running"
    engagement: MemberOrigin = attrs.field(factory=MemberOrigin)


class Roster(Protocol):
    """Who is in the session; asked for every message, so it must answer from memory when nothing has changed."""

    def members(self) -> Mapping[str, Member]:
        """Everybody, by name."""
        ...


class Keys(Protocol):
    """The keys with which members sign; they travel over sockets, never in files or the environment."""

    def key_of(self, sender: Sender) -> bytes | None:
        """The key of that start of that name; None if there is none: then its mail is not believed."""
        ...


@attrs.frozen(kw_only=True)
class Receipt:
    """A message is stored."""

    id: MessageId
    recipient: str
    transport: Literal["queue", "file", "bridge", "control"]
    """control: the root was told, on a socket, and has acted upon it."""
    stored: float
    """Seconds since 1970."""


BridgeState = Literal["accepted", "held", "waiting"]


@attrs.frozen(kw_only=True)
class BridgeReceipt(Receipt):
    """A message for another session is stored; `id` is the first one's if the other session took it for a repeat."""

    state: BridgeState
    """In the mailbox there, with its user, or here until that session listens."""


@attrs.frozen(kw_only=True)
class Delivery:
    """A message that the recipient has now, and must acknowledge."""

    envelope: Envelope
    is_again: bool = False
    """Whether an earlier reader may have had it: it was not acknowledged when that one ended."""


@attrs.frozen(kw_only=True)
class DeadLetter:
    """A message that cannot be delivered, or bytes that are no message."""

    reason: DeadReason
    detail: str
    mailbox: str
    """Whose mailbox it was in."""
    at: float
    envelope: Envelope | None
    raw: bytes
    """What stood there; of a message, its bytes."""


StoreDeadLetter = Callable[[DeadLetter], None]
"""Keeps a dead letter. It returns once the letter is stored, and raises `OSError` if it cannot be."""


@attrs.frozen(kw_only=True)
class Backlog:
    """What waits in a mailbox."""

    messages: int
    bytes: int
    oldest: float | None
    """When the first of them was created."""


class Inbox(Protocol):
    """The reading end of one mailbox, held by one reader at a time."""

    def take_nowait(self, limit: int | None = None) -> list[Delivery]:
        """What is there and was not taken from this inbox before, oldest first, at most *limit*.

        Expired, forged, corrupt and stale mail is buried on the way; what the transcript has is acknowledged and left
        out. Raises `MailboxFailed`.
        """
        ...

    async def wait(self) -> None:
        """Return when `take_nowait` may have something. May return too early; never sleeps through a message."""
        ...

    async def acknowledge(self, ids: Collection[MessageId]) -> None:
        """Return when it is certain that these are not delivered again, whatever dies. Ids taken twice do no harm.

        Raises `ValueError` for an id that was not taken from this inbox, and `MailboxFailed`.
        """
        ...


class Transport(Protocol):
    """A way for mail to travel. Position, acknowledgement and redelivery are its own, so one over a network fits."""

    async def send(self, envelope: Envelope) -> Receipt:
        """Store *envelope* for its recipient, behind what its sender sent there before.

        Raises `SendRefused` if it cannot be taken, and `MailboxFailed` if storing failed; then it is not stored, or
        is dropped by its id if it is sent again. Cancellation leaves it stored whole or not at all.
        """
        ...

    def open_inbox(
        self, name: str, incarnation: int, *, seen: Container[MessageId] = ()
    ) -> AbstractAsyncContextManager[Inbox]:
        """The mailbox of *name* for this start of it; *seen* are the ids that its transcript has.

        Raises `MailboxBusy` while another reader has it, `NameInvalid`, `UnknownRecipient` and `MailboxFailed`.
        """
        ...

    def backlog(self, name: str) -> Backlog:
        """What waits for *name*. Raises `NameInvalid`, `UnknownRecipient` and `MailboxFailed`."""
        ...

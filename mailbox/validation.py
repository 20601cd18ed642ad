"""Checks of a stored message before delivery: recipient, signature, incarnation and expiry."""

import hashlib
from collections.abc import Container
from typing import NewType

import attrs

from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter, DeadReason, Keys
from coterie.mailbox.envelope import Envelope

MessageDigest = NewType("MessageDigest", str)
"""Digest of all bytes of a message."""


@attrs.frozen(kw_only=True)
class MessageValidator:
    """Decides which messages are delivered to one incarnation (numbered start) of the agent *name*."""

    name: str
    incarnation: int
    keys: Keys | None
    """Source of the senders' keys, with which MACs are checked; None: MACs are not checked."""
    clock: Clock
    trusted: Container[MessageDigest] = frozenset()
    """Digests of messages accepted without a valid MAC: stored before any agent of this session run started."""

    def rejection_reason(self, envelope: Envelope) -> tuple[DeadReason, str] | None:
        """Return why *envelope* must not be delivered, as a reason code and a sentence; None if it may be delivered."""
        recipient = envelope.recipient
        if recipient.name != self.name:
            return "refused", f"it is addressed to {recipient.name!r}, but lies in the mailbox of {self.name!r}"
        if (error := self._mac_error(envelope)) is not None:
            return "bad_mac", error
        if recipient.incarnation not in (None, self.incarnation):
            return "stale_incarnation", f"it is for start {recipient.incarnation}, and this is start {self.incarnation}"
        if envelope.is_expired(self.clock.now()):
            return "expired", f"its time to live ended at {envelope.expires}"
        return None

    def to_dead_letter(
        self, reason: DeadReason, detail: str, raw: bytes, envelope: Envelope | None = None
    ) -> DeadLetter:
        """Build the dead letter of *envelope*, stored as *raw*; if *envelope* is None, of the invalid bytes *raw*."""
        return DeadLetter(
            reason=reason, detail=detail, mailbox=self.name, at=self.clock.now(), envelope=envelope, raw=raw
        )

    def _mac_error(self, envelope: Envelope) -> str | None:
        if self.keys is None:
            return None
        sender = envelope.sender
        key = self.keys.key_of(sender)
        if (key is not None and envelope.is_signed_with(key)) or message_digest(envelope) in self.trusted:
            return None
        if key is None:
            return f"there is no key of {sender.name!r}, start {sender.incarnation}"
        return f"{sender.name!r} did not sign it"


def message_digest(envelope: Envelope) -> MessageDigest:
    """Return a digest of all bytes of *envelope*, including the MAC. Different messages have different digests."""
    return MessageDigest(hashlib.blake2b(envelope.to_bytes(), digest_size=16).hexdigest())

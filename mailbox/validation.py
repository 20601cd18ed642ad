"""Checks of a stored message before delivery: recipient, signature, incarnation and expiry."""

import hashlib
from collections.abc import Container
from typing import NewType

import attrs

from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter, DeadReason, Keys
from coterie.mailbox.envelope import Envelope

MessageDigest = NewType("MessageDigest", str)
"""Names all that a message says."""


@attrs.frozen(kw_only=True)
class MessageValidator:
    """Tells the dead from the living, for one start of one name."""

    name: str
    incarnation: int
    keys: Keys | None
    """None: MACs are not checked."""
    clock: Clock
    trusted: Container[MessageDigest] = frozenset()
    """Messages that need no MAC: they were there before anybody who could forge one."""

    def rejection_reason(self, envelope: Envelope) -> tuple[DeadReason, str] | None:
        """Why nobody should get *envelope*, in a word and in a sentence; None if it should be delivered."""
        meant = envelope.recipient
        if meant.name != self.name:
            return "refused", f"it is for {meant.name!r}, and this is the mailbox of {self.name!r}"
        if (flaw := self._mac_error(envelope)) is not None:
            return "bad_mac", flaw
        if meant.incarnation not in (None, self.incarnation):
            return "stale_incarnation", f"it is for start {meant.incarnation}, and this is start {self.incarnation}"
        if envelope.is_expired(self.clock.now()):
            return "expired", f"it was to be read before {envelope.expires}"
        return None

    def to_dead_letter(
        self, reason: DeadReason, detail: str, raw: bytes, envelope: Envelope | None = None
    ) -> DeadLetter:
        """What to bury."""
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
    """The digest of *envelope*, its MAC included; no other message has the same."""
    return MessageDigest(hashlib.blake2b(envelope.to_bytes(), digest_size=16).hexdigest())

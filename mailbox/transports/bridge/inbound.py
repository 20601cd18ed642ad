"""Acceptance of messages from other sessions: checked, given their true sender, stored once."""

from collections.abc import Awaitable, Callable

import attrs
import trio

from coterie.clock import Clock
from coterie.mailbox.address import check_name
from coterie.mailbox.contract import Receipt
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import BridgeRefused, MailboxFailed, NotAllowed, SendRefused
from coterie.mailbox.transports.bridge.accept_policy import AcceptPolicy, InboundRateLimiter
from coterie.mailbox.transports.bridge.held_mail import HeldMail
from coterie.mailbox.transports.bridge.protocol import DeliveryReply, refusal_reply
from coterie.mailbox.transports.bridge.received_ids import ReceivedIds, ReceivedRecord, content_digest

DeliverInbound = Callable[[Envelope], Awaitable[Receipt]]
"""Stores a letter in the session's own transport. The letter has no MAC: the session vouches for it, and signs it."""

RETRY_AFTER = 1.0
"""Seconds after which a sender may try again when storing failed."""


@attrs.define(eq=False)
class InboundMail:
    """Takes letters for one session, one after the other, so that order and the memory of repeats hold."""

    session: str
    deliver: DeliverInbound
    clock: Clock
    terms: AcceptPolicy
    held: HeldMail
    taken: ReceivedIds
    _rates: InboundRateLimiter = attrs.field(init=False)
    _turn: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._rates = InboundRateLimiter(self.terms.per_minute, self.terms.burst)

    async def receive(self, envelope: Envelope, session: str) -> DeliveryReply:
        """Take *envelope*, which came from *session*, and say what became of it. Raises nothing planned.

        Cancelled, the letter is stored whole or not at all.
        """
        sender = attrs.evolve(envelope.sender, session=session, kind="peer")
        letter = attrs.evolve(envelope, sender=sender, mac=None)
        async with self._turn:
            try:
                return await self._accept(letter)
            except SendRefused as exc:
                return refusal_reply(self.session, exc)
            except (MailboxFailed, OSError) as exc:
                return self._delay_reply(str(exc), RETRY_AFTER)

    async def _accept(self, letter: Envelope) -> DeliveryReply:
        self._check(letter)
        now = self.clock.now()
        note = self.taken.find(letter, now=now, window=self.terms.repeat_window)
        if note is None:
            if wait := self._rates.spend((letter.sender.session, letter.sender.name), now):
                limit = f"{letter.sender.name!r} may send {self.terms.per_minute:g} messages a minute"
                return self._delay_reply(f"{limit}; try again in {wait:.1f} seconds", wait)
            note = await self._store(letter)
            self.taken.add(note)
        return DeliveryReply(outcome=note.outcome, session=self.session, id=note.id, stored=note.stored)

    def _check(self, letter: Envelope) -> None:
        check_name(letter.id)
        if letter.kind != "message":
            reason = "mail between sessions is text"
            raise NotAllowed(letter.sender.name, letter.recipient.name, letter.kind, reason)
        if self.terms.policy == "refuse":
            raise BridgeRefused(f"bridge:{self.session}", "it takes no mail from other sessions")

    async def _store(self, letter: Envelope) -> ReceivedRecord:
        if self.terms.policy == "hold":
            await self.held.hold(letter)
            return ReceivedRecord(id=letter.id, words=content_digest(letter), outcome="held", stored=self.clock.now())
        receipt = await self.deliver(letter)
        return ReceivedRecord(id=letter.id, words=content_digest(letter), outcome="accepted", stored=receipt.stored)

    def _delay_reply(self, reason: str, wait: float) -> DeliveryReply:
        return DeliveryReply(outcome="later", session=self.session, reason=reason, wait=wait)

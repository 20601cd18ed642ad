"""What happens to a letter from another session: it is checked, given its true sender, and taken at most once."""

from collections.abc import Awaitable, Callable

import attrs
import trio

from coterie.clock import Clock
from coterie.mailbox.address import check_name
from coterie.mailbox.bridge.frames import Answer
from coterie.mailbox.bridge.held import HeldMail
from coterie.mailbox.bridge.refusals import refusal_answer
from coterie.mailbox.bridge.taken import Note, Taken, words_of
from coterie.mailbox.bridge.terms import Rates, Terms
from coterie.mailbox.contract import Receipt
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import BridgeRefused, MailboxFailed, NotAllowed, SendRefused

Deliver = Callable[[Envelope], Awaitable[Receipt]]
"""Stores a letter in the session's own transport. The letter has no MAC: the session vouches for it, and signs it."""

RETRY_AFTER = 1.0
"""Seconds after which a sender may try again when storing failed."""


@attrs.define(eq=False)
class Inbound:
    """Takes letters for one session, one after the other, so that order and the memory of repeats hold."""

    session: str
    deliver: Deliver
    clock: Clock
    terms: Terms
    held: HeldMail
    taken: Taken
    _rates: Rates = attrs.field(init=False)
    _turn: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._rates = Rates(self.terms.per_minute, self.terms.burst)

    async def answer(self, envelope: Envelope, session: str) -> Answer:
        """Take *envelope*, which came from *session*, and say what became of it. Raises nothing planned.

        Cancelled, the letter is stored whole or not at all.
        """
        sender = attrs.evolve(envelope.sender, session=session, kind="peer")
        letter = attrs.evolve(envelope, sender=sender, mac=None)
        async with self._turn:
            try:
                return await self._take(letter)
            except SendRefused as exc:
                return refusal_answer(self.session, exc)
            except (MailboxFailed, OSError) as exc:
                return self._later(str(exc), RETRY_AFTER)

    async def _take(self, letter: Envelope) -> Answer:
        self._check(letter)
        now = self.clock.now()
        note = self.taken.find(letter, now=now, window=self.terms.repeat_window)
        if note is None:
            if wait := self._rates.spend((letter.sender.session, letter.sender.name), now):
                limit = f"{letter.sender.name!r} may send {self.terms.per_minute:g} messages a minute"
                return self._later(f"{limit}; try again in {wait:.1f} seconds", wait)
            note = await self._store(letter)
            self.taken.add(note)
        return Answer(outcome=note.outcome, session=self.session, id=note.id, stored=note.stored)

    def _check(self, letter: Envelope) -> None:
        check_name(letter.id)
        if letter.kind != "message":
            reason = "mail between sessions is text"
            raise NotAllowed(letter.sender.name, letter.recipient.name, letter.kind, reason)
        if self.terms.policy == "refuse":
            raise BridgeRefused(f"bridge:{self.session}", "it takes no mail from other sessions")

    async def _store(self, letter: Envelope) -> Note:
        if self.terms.policy == "hold":
            await self.held.hold(letter)
            return Note(id=letter.id, words=words_of(letter), outcome="held", stored=self.clock.now())
        receipt = await self.deliver(letter)
        return Note(id=letter.id, words=words_of(letter), outcome="accepted", stored=receipt.stored)

    def _later(self, reason: str, wait: float) -> Answer:
        return Answer(outcome="later", session=self.session, reason=reason, wait=wait)

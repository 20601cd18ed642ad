"""One inbox that combines all inboxes of an agent."""

from collections.abc import Collection, Sequence

import attrs
import trio

from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter, Delivery, Inbox, StoreDeadLetter
from coterie.mailbox.envelope import MessageId
from coterie.mailbox.policy import AUTHORITY

REMEMBERED = 50_000
"""Number of newest taken messages whose inbox is remembered, for `acknowledge`; more than can be pending together."""


@attrs.define(eq=False)
class MergedInbox:
    """An `Inbox` that combines all inboxes of one agent: that of its own process and those of other transports."""

    name: str
    local: Inbox
    """Inbox of messages from tasks of this process: only here, messages of the kinds in `AUTHORITY` are valid."""
    others: Sequence[Inbox]
    _store_dead_letter: StoreDeadLetter
    _clock: Clock = attrs.field(factory=Clock)
    _taken: dict[MessageId, Inbox] = attrs.field(factory=dict, init=False)
    _refused: list[MessageId] = attrs.field(factory=list, init=False)

    def take_nowait(self, limit: int | None = None) -> list[Delivery]:
        """Take messages from all inboxes, first from `local`, as `Inbox.take_nowait` does from one.

        A message of a kind in `AUTHORITY`, which stops the recipient or grants it something, must be in `local`. In
        another inbox it becomes a dead letter.
        """
        taken: list[Delivery] = []
        for inbox in (self.local, *self.others):
            left = None if limit is None else limit - len(taken)
            for delivery in inbox.take_nowait(left):
                self._taken[delivery.envelope.id] = inbox
                envelope = delivery.envelope
                if inbox is self.local or envelope.kind not in AUTHORITY:
                    taken.append(delivery)
                    continue
                detail = f"{envelope.kind} is accepted only inside one process, and this message came from outside"
                self._store_dead_letter(DeadLetter.of(envelope, "refused", detail, self.name, self._clock.now()))
                self._refused.append(envelope.id)
        return taken

    async def wait(self) -> None:
        """Return when any of the inboxes may have a message. May return too early, but never misses a message."""
        async with trio.open_nursery() as nursery:

            async def wait_for(inbox: Inbox) -> None:
                await inbox.wait()
                nursery.cancel_scope.cancel()

            for inbox in (self.local, *self.others):
                nursery.start_soon(wait_for, inbox)

    async def acknowledge(self, ids: Collection[MessageId]) -> None:
        """Acknowledge each message of *ids* in the inbox that returned it, as `Inbox.acknowledge`.

        Raises `ValueError` for an id that was not taken from this inbox.
        """
        if unknown := next((id_ for id_ in ids if id_ not in self._taken), None):
            raise ValueError(f"cannot acknowledge message {unknown}: no inbox of {self.name!r} has returned it")
        for inbox in (self.local, *self.others):
            own = [id_ for id_ in (*ids, *self._refused) if self._taken.get(id_) is inbox]
            if own:
                await inbox.acknowledge(own)
        self._refused.clear()
        while len(self._taken) > REMEMBERED:
            del self._taken[next(iter(self._taken))]

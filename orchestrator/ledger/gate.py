"""A gate that keeps the books: it lets another one decide, and writes down what each admitted request came to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs

from coterie.agents.gate import Gate, Intent, Permit
from coterie.agents.usage import Usage
from coterie.clock import Clock
from coterie.orchestrator.ledger.ledger import Ledger
from coterie.orchestrator.ledger.line import LedgerLine


@attrs.define(eq=False)
class LedgerPermit:
    """Another gate's permit, with a memory of how the request ended. Without a word, it may have cost the most."""

    _intent: Intent
    _permit: Permit
    used: Usage = attrs.field(init=False)
    is_estimated: bool = True
    is_free: bool = False

    def __attrs_post_init__(self) -> None:
        self.used = self._intent.most

    def begin(self) -> None:
        """Pass it on."""
        self._permit.begin()

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """Pass it on, and remember *usage*; of a reply that broke off, the most that it may have used."""
        self._permit.settle(usage, is_whole=is_whole)
        self.used = usage if is_whole else self._intent.at_most(usage)
        self.is_estimated = not is_whole

    def void(self) -> None:
        """Pass it on; there is nothing to write down."""
        self._permit.void()
        self.is_free = True


@attrs.define(eq=False, kw_only=True)
class LedgerGate:
    """What one start of an agent passes on its way to *gate*; each of its requests becomes a line of *ledger*.

    A reply that was whole is written down as it was reported, one that broke off as the most that it may have cost.
    There is no line for a request that was surely not billed.
    """

    gate: Gate
    ledger: Ledger
    clock: Clock
    incarnation: int = 1
    parent: str | None = None
    """Who spawned the agent."""

    @asynccontextmanager
    async def admit(self, intent: Intent) -> AsyncIterator[Permit]:
        """Admit as *gate* does; leaving the block, also by cancellation, writes the line first.

        Raises `OSError` too, when that cannot be done.
        """
        async with self.gate.admit(intent) as inner:
            permit = LedgerPermit(intent, inner)
            try:
                yield permit
            finally:
                if not permit.is_free:
                    self.ledger.append(self._line(intent, permit))

    def cool_down(self, seconds: float) -> None:
        """Pass it on."""
        self.gate.cool_down(seconds)

    def _line(self, intent: Intent, permit: LedgerPermit) -> LedgerLine:
        return LedgerLine.of(
            intent,
            permit.used,
            at=self.clock.now(),
            agent=intent.agent,
            incarnation=self.incarnation,
            parent=self.parent,
            is_estimated=permit.is_estimated,
        )

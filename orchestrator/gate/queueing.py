"""Who waits at the gate, and in which order they are served."""

import bisect
import itertools
from operator import attrgetter

import attrs
import trio

from coterie.agents.gate import Intent
from coterie.orchestrator.gate.budgets import Account, Amount
from coterie.orchestrator.gate.permit import Asking, SessionPermit
from coterie.orchestrator.gate.warmth import shared_keys

PATIENCE = 30.0
"""Seconds after which a call is served as if it were a turn: later ones no longer pass it, whatever they are for."""


@attrs.define(eq=False)
class Waiter:
    """A call that asks to be admitted. It gets one verdict: a permit, or why there will be none."""

    asking: Asking
    intent: Intent
    need: Amount
    accounts: tuple[Account, ...]
    arrived: float
    number: int
    rank: int
    keys: tuple[bytes, ...]
    """The prefixes that it may share with a call under way."""
    verdict: SessionPermit | Exception | None = None
    alarm: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """At its deadline the waiter looks again, for everybody."""
    _decided: trio.Event = attrs.field(factory=trio.Event)

    def decide(self, verdict: SessionPermit | Exception) -> None:
        """Give the verdict and wake the waiter."""
        self.verdict = verdict
        self._decided.set()

    async def wait(self) -> None:
        """Return once there is a verdict; a checkpoint also if there is one already."""
        await self._decided.wait()


@attrs.define(eq=False)
class Queue:
    """The calls without a verdict, by priority; of equal ones the first to come is the first to be served."""

    _waiters: dict[int, Waiter] = attrs.field(factory=dict)
    """By number, which is the order of their arrival."""
    _numbers: "itertools.count[int]" = attrs.field(factory=itertools.count)

    def __len__(self) -> int:
        return len(self._waiters)

    def join(self, asking: Asking, intent: Intent, need: Amount, accounts: tuple[Account, ...]) -> Waiter:
        """A new waiter, behind all others of its priority."""
        waiter = Waiter(
            asking,
            intent,
            need,
            accounts,
            trio.current_time(),
            next(self._numbers),
            intent.priority,
            shared_keys(intent),
        )
        self._waiters[waiter.number] = waiter
        return waiter

    def decide(self, waiter: Waiter, verdict: SessionPermit | Exception) -> None:
        """Let *waiter* go with its verdict."""
        self.leave(waiter)
        waiter.decide(verdict)

    def leave(self, waiter: Waiter) -> None:
        """Forget *waiter*; nothing happens if it has left before."""
        self._waiters.pop(waiter.number, None)

    def first(self) -> Waiter | None:
        """Who has waited longest; None when nobody waits."""
        return next(iter(self._waiters.values()), None)

    def in_order(self, now: float) -> list[Waiter]:
        """Everybody, as they are to be served at *now*."""
        waiters = list(self._waiters.values())
        impatient = bisect.bisect_right(waiters, now - PATIENCE, key=attrgetter("arrived"))
        # The sort keeps the order of arrival among equals.
        return waiters[:impatient] + sorted(waiters[impatient:], key=attrgetter("rank"))

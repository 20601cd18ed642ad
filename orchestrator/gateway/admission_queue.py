"""Queue of model calls that wait for admission, by priority."""

import bisect
import itertools
from operator import attrgetter

import attrs
import trio

from coterie.agents.loop.model.call_intent import CallIntent
from coterie.orchestrator.gateway.budgets import Account, Amount
from coterie.orchestrator.gateway.cache_warmup import shared_keys
from coterie.orchestrator.gateway.permit import CallPermit, GatewayCaller

MAX_PRIORITY_WAIT = 30.0
"""Seconds after which a call is served as if it were a turn: later ones no longer pass it, whatever they are for."""


@attrs.define(eq=False)
class QueuedCall:
    """A call that asks to be admitted. It gets one verdict: a permit, or why there will be none."""

    caller: GatewayCaller
    intent: CallIntent
    need: Amount
    accounts: tuple[Account, ...]
    arrived: float
    number: int
    rank: int
    keys: tuple[bytes, ...]
    """The prefixes that it may share with a call under way."""
    verdict: CallPermit | Exception | None = None
    alarm: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """At its deadline the waiter looks again, for everybody."""
    _decided: trio.Event = attrs.field(factory=trio.Event)

    def decide(self, verdict: CallPermit | Exception) -> None:
        """Give the verdict and wake the waiter."""
        self.verdict = verdict
        self._decided.set()

    async def wait(self) -> None:
        """Return once there is a verdict; a checkpoint also if there is one already."""
        await self._decided.wait()


@attrs.define(eq=False)
class AdmissionQueue:
    """The calls without a verdict, by priority; of equal ones the first to come is the first to be served."""

    _waiters: dict[int, QueuedCall] = attrs.field(factory=dict)
    """By number, which is the order of their arrival."""
    _numbers: "itertools.count[int]" = attrs.field(factory=itertools.count)

    def __len__(self) -> int:
        return len(self._waiters)

    def join(
        self, asking: GatewayCaller, intent: CallIntent, need: Amount, accounts: tuple[Account, ...]
    ) -> QueuedCall:
        """A new waiter, behind all others of its priority."""
        waiter = QueuedCall(
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

    def decide(self, waiter: QueuedCall, verdict: CallPermit | Exception) -> None:
        """Let *waiter* go with its verdict."""
        self.leave(waiter)
        waiter.decide(verdict)

    def leave(self, waiter: QueuedCall) -> None:
        """Forget *waiter*; nothing happens if it has left before."""
        self._waiters.pop(waiter.number, None)

    def first(self) -> QueuedCall | None:
        """Who has waited longest; None when nobody waits."""
        return next(iter(self._waiters.values()), None)

    def in_order(self, now: float) -> list[QueuedCall]:
        """Everybody, as they are to be served at *now*."""
        waiters = list(self._waiters.values())
        impatient = bisect.bisect_right(waiters, now - MAX_PRIORITY_WAIT, key=attrgetter("arrived"))
        # The sort keeps the order of arrival among equals.
        return waiters[:impatient] + sorted(waiters[impatient:], key=attrgetter("rank"))

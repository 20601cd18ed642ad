"""Queue of model calls that wait for admission, by priority."""

import bisect
import itertools
from decimal import Decimal
from operator import attrgetter

import attrs
import trio

from coterie.agents.loop.model.call_intent import CallIntent
from coterie.orchestrator.gateway.budgets import Account
from coterie.orchestrator.gateway.cache_warmup import shared_keys
from coterie.orchestrator.gateway.permit import CallPermit, GatewayCaller

MAX_PRIORITY_WAIT = 30.0
"""Seconds after which a waiting call gets the highest priority, so that later calls no longer pass it."""


@attrs.define(eq=False)
class QueuedCall:
    """A call that waits for admission. It gets one verdict: a permit, or the exception that refuses it."""

    caller: GatewayCaller
    intent: CallIntent
    need: Decimal
    accounts: tuple[Account, ...]
    arrived: float
    number: int
    rank: int
    keys: tuple[bytes, ...]
    """Keys of the prompt prefixes that this call may share with a running call."""
    verdict: CallPermit | Exception | None = None
    alarm: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Scope whose deadline wakes this waiter to check the whole queue again."""
    decided: trio.Event = attrs.field(factory=trio.Event)
    """Set with the verdict."""


@attrs.define(eq=False)
class AdmissionQueue:
    """Queue of calls without a verdict, by priority and then by arrival."""

    _waiters: dict[int, QueuedCall] = attrs.field(factory=dict)
    """Waiting calls by number, in order of arrival."""
    _numbers: "itertools.count[int]" = attrs.field(factory=itertools.count)

    def join(
        self, caller: GatewayCaller, intent: CallIntent, need: Decimal, accounts: tuple[Account, ...]
    ) -> QueuedCall:
        """Append a call behind all others of its priority and return its queue entry."""
        waiter = QueuedCall(
            caller,
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
        """Remove *waiter* from the queue and wake it with *verdict*."""
        self.leave(waiter)
        waiter.verdict = verdict
        waiter.decided.set()

    def leave(self, waiter: QueuedCall) -> None:
        """Remove *waiter* from the queue. No-op if it has been removed."""
        self._waiters.pop(waiter.number, None)

    def first(self) -> QueuedCall | None:
        """Return the call that has waited longest; None if the queue is empty."""
        return next(iter(self._waiters.values()), None)

    def in_order(self, now: float) -> list[QueuedCall]:
        """Return all waiting calls in the order of service at time *now*."""
        waiters = list(self._waiters.values())
        impatient = bisect.bisect_right(waiters, now - MAX_PRIORITY_WAIT, key=attrgetter("arrived"))
        # The sort keeps the order of arrival among equals.
        return waiters[:impatient] + sorted(waiters[impatient:], key=attrgetter("rank"))

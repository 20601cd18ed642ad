"""Gateway of a session: admits every model call of every agent, within budgets and rate limits.

`_serve` makes every admission decision between two checkpoints. It runs after each change and starts every waiting call
that may start now. For calls that must only wait for a time it sets a deadline in a waiting task, so the gateway needs
no task of its own. A call that would fit a budget after other calls have settled waits, and only a call of higher
priority may pass it on the same budget. It waits only while a reservation exists on that budget, so it is finally
either admitted or refused.
"""

import bisect
import itertools
import math
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from operator import attrgetter

import attrs
import trio

from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.gateway_protocol import CONCURRENT_CALLS, Permit
from coterie.clock import Clock
from coterie.orchestrator.gateway.budgets import Account, BudgetAccounts, PriorSpending
from coterie.orchestrator.gateway.cache_warmup import CacheWarmup, shared_keys
from coterie.orchestrator.gateway.permit import CallCost, CallPermit, GatewayCaller

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
        arrived, number, keys = trio.current_time(), next(self._numbers), shared_keys(intent)
        waiter = self._waiters[number] = QueuedCall(caller, intent, need, accounts, arrived, number, keys)
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
        return waiters[:impatient] + sorted(waiters[impatient:], key=attrgetter("intent.priority"))


GAP = 0.1
"""Average seconds between two starts after a pause, until the queue is empty."""


@attrs.define(eq=False)
class RateLimitPause:
    """Pause of all calls after a rate limit error; times are on trio's clock."""

    jitter: random.Random
    closed_until: float = -math.inf
    _next_start: float = -math.inf
    _is_recovering: bool = False

    def extend(self, now: float, seconds: float) -> None:
        """Pause for *seconds* plus a random 0 to 25 %. Never shortens an earlier pause."""
        later = now + seconds * (1 + self.jitter.random() / 4)
        self.closed_until = max(self.closed_until, later)
        self._is_recovering = True

    @property
    def opens_at(self) -> float:
        """Earliest time at which a call may start."""
        return max(self.closed_until, self._next_start)

    def started(self, now: float) -> None:
        """Record the start of a call; after a pause the next start is delayed by about `GAP` seconds."""
        if self._is_recovering:
            self._next_start = now + GAP * (0.5 + self.jitter.random())

    def reset(self, now: float) -> None:
        """Stop spacing the starts if the pause is over; call it when the queue is empty."""
        if now >= self.closed_until:
            self._is_recovering = False


HOLD = 5.0
"""Maximum seconds that a call waits for another call to write their common prefix to the cache."""


@attrs.define(eq=False)
class GatewayClient:
    """Gateway access of one incarnation of an agent; implements `Gateway`. Made by `ModelGateway.open_client`."""

    caller: GatewayCaller
    _gateway: "ModelGateway"
    is_closed: bool = False

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """Wait until *intent* may be sent; the end of the block settles the permit as `CallPermit` describes.

        The call is charged to this client's agent, whatever agent the intent names. Raises `BudgetSpent` if the call
        cannot fit a budget any longer, and `trio.ClosedResourceError` if this client is closed. Cancellation while
        waiting releases everything. Do not wait for a second permit while holding one: the second call may wait for
        the budget that the first one reserves.
        """
        if self.is_closed:
            raise trio.ClosedResourceError(f"the gateway client of {self.caller.agent} is closed")
        with await self._gateway.wait_for_permit(self.caller, intent) as permit:
            yield permit

    def cool_down(self, seconds: float) -> None:
        """Pause all calls of the session for *seconds* or a little more."""
        self._gateway.cool_down(seconds)

    def close(self) -> None:
        """Refuse the waiting calls and settle the running ones as if they ended now. Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            self._gateway.release(self.caller)


@attrs.define(eq=False)
class ModelGateway:
    """Budgets, concurrency limit, rate limit pause and cache warm-up of one session, for tasks of one trio run."""

    clock: Clock
    """Clock for the lifetime of cached prefixes. All other times are on trio's clock."""
    budget: Decimal | None = None
    """Maximum dollars of the session; None for no limit."""
    max_calls: int = CONCURRENT_CALLS
    """Maximum number of concurrent calls."""
    warmup_hold: float = HOLD
    jitter: random.Random = attrs.field(factory=random.Random)
    earlier: PriorSpending = attrs.field(factory=PriorSpending)
    """Spending of earlier roots, counted from the start."""
    started: Callable[[CallPermit], None] | None = None
    """Callback for each admitted call, called before the caller gets its permit."""
    settled: Callable[[CallCost], None] | None = None
    """Callback for each ended call, called after its slot is free."""
    accounts: BudgetAccounts = attrs.field(init=False)
    _queue: AdmissionQueue = attrs.field(factory=AdmissionQueue, init=False)
    _permits: dict[CallPermit, None] = attrs.field(factory=dict, init=False)
    """Permits of running calls, oldest first."""
    _calls: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    pause: RateLimitPause = attrs.field(init=False)
    _warmup: CacheWarmup = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        session = Account("session", limit=self.budget, spent=self.earlier.session)
        self.accounts = BudgetAccounts(session, prior=self.earlier)
        self.pause = RateLimitPause(self.jitter)
        self._warmup = CacheWarmup(self.clock, self.warmup_hold)

    @asynccontextmanager
    async def open_client(
        self,
        name: str,
        *,
        incarnation: int = 1,
        parent: str | None = None,
        subtree: Decimal | None = None,
    ) -> AsyncIterator[GatewayClient]:
        """Open the gateway for one incarnation of agent *name*; the end of the block closes the client and its permits.

        *subtree* is the maximum dollars of the agent with all agents it spawns; None keeps the limit of an earlier
        incarnation. Earlier spending counts. Raises `ValueError` if *parent* is unknown or has changed.
        """
        self.accounts.open(name, parent, subtree)
        client = GatewayClient(GatewayCaller(agent=name, incarnation=incarnation, parent=parent), self)
        try:
            yield client
        finally:
            client.close()

    def cool_down(self, seconds: float) -> None:
        """Start no call for *seconds* or a little more; never shortens an earlier pause."""
        self.pause.extend(trio.current_time(), seconds)

    def activity(self, name: str | None = None) -> tuple[int, int]:
        """Return the numbers of running and of waiting calls of agent *name*, or of all agents."""
        running = sum(name in (None, permit.caller.agent) for permit in self._permits)
        waiting = self._queue.in_order(trio.current_time())
        return running, sum(name in (None, waiter.caller.agent) for waiter in waiting)

    async def wait_for_permit(self, caller: GatewayCaller, intent: CallIntent) -> CallPermit:
        """Wait for the permit of *intent*, which the caller must close. A cancelled wait holds no slot or budget."""
        need = intent.model.cost(intent.most)
        waiter = self._queue.join(caller, intent, need, self.accounts.accounts_of(caller.agent))
        self._refuse(waiter)
        is_delivered = False
        try:
            while waiter.verdict is None:
                with trio.CancelScope() as waiter.alarm:
                    self._serve()
                    await waiter.decided.wait()
            is_delivered = True
        finally:
            if not is_delivered:
                self._queue.leave(waiter)
                # The permit may have been granted just before the cancellation.
                if isinstance(waiter.verdict, CallPermit):
                    waiter.verdict.void()
                    waiter.verdict.close()
                self._serve()
        if isinstance(waiter.verdict, CallPermit):
            return waiter.verdict
        raise waiter.verdict

    def release(self, caller: GatewayCaller) -> None:
        """Refuse the waiting calls of *caller* and close its permits."""
        for waiter in self._queue.in_order(trio.current_time()):
            if waiter.caller is caller:
                closed = trio.ClosedResourceError(f"the gateway client of {caller.agent} is closed")
                self._queue.decide(waiter, closed)
        for permit in [permit for permit in self._permits if permit.caller is caller]:
            permit.close()
        self._serve()

    def _serve(self) -> None:
        """Start every call that may start now; schedule the next check if another can start at a known time."""
        if len(self._permits) >= self.max_calls:
            return
        now = trio.current_time()
        next_check = math.inf
        claimed: set[Account] = set()
        for waiter in self._queue.in_order(now):
            if self.pause.opens_at > now:
                next_check = self.pause.opens_at
                break
            if (blocked := self._warmup.blocked_until(waiter.keys, now)) is not None:
                next_check = min(next_check, blocked)
            elif short := {account for account in waiter.accounts if not account.has_room(waiter.need)}:
                claimed |= set() if self._refuse(waiter) else short
            elif claimed.isdisjoint(waiter.accounts):
                self._start(waiter, now)
                if len(self._permits) == self.max_calls:
                    return
        if (oldest := self._queue.first()) is None:
            self.pause.reset(now)
        else:
            oldest.alarm.deadline = next_check

    def _start(self, waiter: QueuedCall, now: float) -> None:
        for account in waiter.accounts:
            account.reserve(waiter.need)
        permit = CallPermit(
            waiter.caller,
            waiter.intent,
            waiter.need,
            waiter.accounts,
            self._warmup.start(waiter.intent, now),
            self._begun,
            self._over,
            next(self._calls),
        )
        self._permits[permit] = None
        if self.started is not None:
            self.started(permit)
        self.pause.started(now)
        self._queue.decide(waiter, permit)

    def _begun(self, permit: CallPermit) -> None:
        self._warmup.begin(permit.warming)
        self._serve()

    def _over(self, permit: CallPermit) -> None:
        outcome = permit.outcome()
        for account in permit.accounts:
            account.settle(permit.need, outcome.cost, is_estimated=outcome.is_estimated)
        del self._permits[permit]
        self._warmup.end(permit.warming)
        self._serve()
        if self.settled is not None:
            self.settled(outcome)

    def _refuse(self, waiter: QueuedCall) -> bool:
        """Refuse *waiter* if no settlement can make room for it; return True if refused."""
        for account in waiter.accounts:
            if (refused := account.refusal(waiter.need)) is not None:
                self._queue.decide(waiter, refused)
                return True
        return False

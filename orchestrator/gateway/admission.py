"""Gateway of a session: it admits each model call of each agent, within budgets, rate limits and a maximum number.

`_serve` runs after each change and starts every waiting call that may start now. It makes its decisions without a
checkpoint, so no other task interferes. If calls only wait until a certain time, it sets a deadline in a waiting task,
so the gateway needs no task of its own. A call whose price does not fit into a budget now, but may fit after running
calls have ended, waits. On the same budget, only a call of higher priority may start before it. It waits only while
running calls reserve part of the budget, so it is finally either admitted or refused.
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
"""Seconds after which a waiting call gets the highest priority, so that later calls no longer start before it."""


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
    """Hashes of the prompt prefixes that this call may share with a running call, through the prompt cache."""
    verdict: CallPermit | Exception | None = None
    alarm: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Scope of the waiting task; its deadline wakes the task to check the whole queue again."""
    decided: trio.Event = attrs.field(factory=trio.Event)
    """Set when `verdict` is set."""


@attrs.define(eq=False)
class AdmissionQueue:
    """Queue of waiting model calls by priority, then arrival; those that waited `MAX_PRIORITY_WAIT` come first."""

    _waiters: dict[int, QueuedCall] = attrs.field(factory=dict)
    """Waiting calls by sequence number, in order of arrival."""
    _numbers: "itertools.count[int]" = attrs.field(factory=itertools.count)

    def join(
        self, caller: GatewayCaller, intent: CallIntent, need: Decimal, accounts: tuple[Account, ...]
    ) -> QueuedCall:
        """Append a call that reserves *need* dollars on each of *accounts*, and return its queue entry."""
        arrived, number, keys = trio.current_time(), next(self._numbers), shared_keys(intent)
        waiter = self._waiters[number] = QueuedCall(caller, intent, need, accounts, arrived, number, keys)
        return waiter

    def decide(self, waiter: QueuedCall, verdict: CallPermit | Exception) -> None:
        """Remove *waiter* from the queue, and wake its task with *verdict*, a permit or the error that refuses it."""
        self.leave(waiter)
        waiter.verdict = verdict
        waiter.decided.set()

    def leave(self, waiter: QueuedCall) -> None:
        """Remove *waiter* from the queue. No-op if it has already left the queue."""
        self._waiters.pop(waiter.number, None)

    def first(self) -> QueuedCall | None:
        """Return the call that has waited longest; None if the queue is empty."""
        return next(iter(self._waiters.values()), None)

    def in_order(self, now: float) -> list[QueuedCall]:
        """Return all waiting calls in the order in which they should start at time *now*."""
        waiters = list(self._waiters.values())
        impatient = bisect.bisect_right(waiters, now - MAX_PRIORITY_WAIT, key=attrgetter("arrived"))
        # The sort keeps the order of arrival among equals.
        return waiters[:impatient] + sorted(waiters[impatient:], key=attrgetter("intent.priority"))


GAP = 0.1
"""Average seconds between the starts of two calls after a rate limit pause, until the queue is empty."""


@attrs.define(eq=False)
class RateLimitPause:
    """Pause of all calls after a rate limit error of the API, and slower starts after it. Times are on trio's clock."""

    jitter: random.Random
    closed_until: float = -math.inf
    _next_start: float = -math.inf
    _is_recovering: bool = False

    def extend(self, now: float, seconds: float) -> None:
        """Pause for *seconds* plus a random 0 to 25 % from *now*. Never shortens an earlier pause."""
        later = now + seconds * (1 + self.jitter.random() / 4)
        self.closed_until = max(self.closed_until, later)
        self._is_recovering = True

    @property
    def opens_at(self) -> float:
        """Earliest time at which the next call may start."""
        return max(self.closed_until, self._next_start)

    def started(self, now: float) -> None:
        """Record the start of a call at *now*. After a pause, the next start is delayed by about `GAP` seconds."""
        if self._is_recovering:
            self._next_start = now + GAP * (0.5 + self.jitter.random())

    def reset(self, now: float) -> None:
        """End the delays between starts if the pause is over at *now*. Call it when the queue is empty."""
        if now >= self.closed_until:
            self._is_recovering = False


HOLD = 5.0
"""Maximum seconds that a call waits for another call that writes their common prompt prefix to the cache."""


@attrs.define(eq=False)
class GatewayClient:
    """Gateway access of an agent from its start to its end; implements `Gateway`. See `ModelGateway.open_client`."""

    caller: GatewayCaller
    _gateway: "ModelGateway"
    is_closed: bool = False

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """Wait until the model call *intent* may be sent; the end of the block settles its cost, see `CallPermit`.

        The call is charged to this client's agent, whatever agent *intent* names. Raises `BudgetSpent` if the call can
        no longer fit into a budget, and `trio.ClosedResourceError` if this client is closed. Cancellation while waiting
        releases everything. Do not enter a second block inside the first: the second call may wait for dollars that the
        first reserves.
        """
        if self.is_closed:
            raise trio.ClosedResourceError(f"the gateway client of {self.caller.agent} is closed")
        with await self._gateway.wait_for_permit(self.caller, intent) as permit:
            yield permit

    def cool_down(self, seconds: float) -> None:
        """Start no call of the session for *seconds* or a little more, because of a rate limit error."""
        self._gateway.cool_down(seconds)

    def close(self) -> None:
        """Refuse the waiting calls of this client, and settle its running calls as if they ended now. Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            self._gateway.release(self.caller)


@attrs.define(eq=False)
class ModelGateway:
    """Gateway that admits the model calls of one session. All its users are tasks of one trio run.

    It enforces budgets, a maximum number of concurrent calls and pauses after rate limits. Of calls with the same
    uncached prompt prefix it starts one first, so that the others read the prefix from the prompt cache.
    """

    clock: Clock
    """Clock for the lifetime of cached prompt prefixes. All other times are on trio's clock."""
    budget: Decimal | None = None
    """Maximum dollars that the session may spend; None for no limit."""
    max_calls: int = CONCURRENT_CALLS
    """Maximum number of model calls at the same time."""
    warmup_hold: float = HOLD
    jitter: random.Random = attrs.field(factory=random.Random)
    earlier: PriorSpending = attrs.field(factory=PriorSpending)
    """Spending under earlier root (supervisor) processes of the session; it counts against the budgets."""
    started: Callable[[CallPermit], None] | None = None
    """Called with the permit of each admitted call, before the caller gets the permit."""
    settled: Callable[[CallCost], None] | None = None
    """Called with the cost of each ended call, after waiting calls could start in its place."""
    accounts: BudgetAccounts = attrs.field(init=False)
    _queue: AdmissionQueue = attrs.field(factory=AdmissionQueue, init=False)
    _permits: dict[CallPermit, None] = attrs.field(factory=dict, init=False)
    """Permits of the running calls, oldest first; the values are unused."""
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
        """Open the gateway for one start (incarnation) of agent *name*; the block's end closes client and permits.

        *subtree* is the maximum dollars of the agent with all agents it spawns; None keeps the limit of an earlier
        incarnation. Earlier spending counts. Raises `ValueError` for an unknown or changed *parent*, or *subtree* < 0.
        """
        self.accounts.open(name, parent, subtree)
        client = GatewayClient(GatewayCaller(agent=name, incarnation=incarnation, parent=parent), self)
        try:
            yield client
        finally:
            client.close()

    def cool_down(self, seconds: float) -> None:
        """Start no call for *seconds* or a little more. Never shortens an earlier pause."""
        self.pause.extend(trio.current_time(), seconds)

    def activity(self, name: str | None = None) -> tuple[int, int]:
        """Return how many calls of agent *name* are running, and how many are waiting; of all agents if None."""
        running = sum(name in (None, permit.caller.agent) for permit in self._permits)
        waiting = self._queue.in_order(trio.current_time())
        return running, sum(name in (None, waiter.caller.agent) for waiter in waiting)

    async def wait_for_permit(self, caller: GatewayCaller, intent: CallIntent) -> CallPermit:
        """Wait until the call *intent* is admitted, and return its permit, which the caller must close.

        Raises `BudgetSpent` and `trio.ClosedResourceError`, as `GatewayClient.admit`. Cancellation releases everything.
        """
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
        """Refuse the waiting calls of *caller*, and close the permits of its running calls."""
        for waiter in self._queue.in_order(trio.current_time()):
            if waiter.caller is caller:
                closed = trio.ClosedResourceError(f"the gateway client of {caller.agent} is closed")
                self._queue.decide(waiter, closed)
        for permit in [permit for permit in self._permits if permit.caller is caller]:
            permit.close()
        self._serve()

    def _serve(self) -> None:
        """Start every waiting call that may start now. If others can start at a known time, schedule a check then."""
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
        """Refuse *waiter* if it cannot fit into a budget even after all running calls end. Returns True if refused."""
        for account in waiter.accounts:
            if (refused := account.refusal(waiter.need)) is not None:
                self._queue.decide(waiter, refused)
                return True
        return False

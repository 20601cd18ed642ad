"""Gateway of a session: admits every model call of every agent, within budgets and rate limits.

Everything but the wait itself is decided between two checkpoints by `_serve`, which runs whenever something has
changed. It starts each waiting call that may start now; for those that only time keeps back it sets an alarm, so no
task of the gate's own is needed. A call that would fit a budget once others have settled waits, and nobody who draws
on the same budget passes it unless by priority; it waits only while something is reserved there, so either room comes
or the refusal does.
"""

import itertools
import math
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import attrs
import trio

from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.gateway_protocol import CONCURRENT_CALLS, Permit
from coterie.clock import Clock
from coterie.orchestrator.gateway.admission_queue import AdmissionQueue, QueuedCall
from coterie.orchestrator.gateway.budgets import (
    UNLIMITED,
    Account,
    Amount,
    BudgetAccounts,
    BudgetLimits,
    PriorSpending,
    refusal,
)
from coterie.orchestrator.gateway.cache_warmup import CacheWarmup
from coterie.orchestrator.gateway.permit import CallCost, CallPermit, GatewayCaller

GAP = 0.1
"""Seconds between two starts, on average, until the crowd that a cool-down made is gone."""


@attrs.define(eq=False)
class RateLimitPause:
    """When the next call may start, on trio's clock."""

    jitter: random.Random
    closed_until: float = -math.inf
    _next_start: float = -math.inf
    _is_recovering: bool = False

    def extend(self, now: float, seconds: float) -> None:
        """Close for *seconds* and up to a quarter more. Never shortens what was said before."""
        later = now + seconds * (1 + self.jitter.random() / 4)
        self.closed_until = max(self.closed_until, later)
        self._is_recovering = True

    @property
    def opens_at(self) -> float:
        """The time before which nobody may start."""
        return max(self.closed_until, self._next_start)

    def started(self, now: float) -> None:
        """A call has started; after a cool-down the next one keeps its distance."""
        if self._is_recovering:
            self._next_start = now + GAP * (0.5 + self.jitter.random())

    def reset(self, now: float) -> None:
        """Nobody is waiting: once the cool-down is over, so is the recovery from it."""
        if now >= self.closed_until:
            self._is_recovering = False


@attrs.frozen(kw_only=True)
class AccountStats:
    """One budget at one moment."""

    limits: BudgetLimits
    spent: Amount
    estimated: Amount
    """The part of what is spent that is an upper bound."""
    reserved: Amount

    @classmethod
    def of(cls, account: Account) -> "AccountStats":
        """How *account* stands now."""
        return cls(limits=account.limits, spent=account.spent, estimated=account.estimated, reserved=account.reserved)


@attrs.frozen(kw_only=True)
class AgentStats:
    """One agent at the gate. Its budgets are shown also after it has ended."""

    name: str
    parent: str | None
    own: AccountStats
    subtree: AccountStats
    running_calls: int
    """Calls admitted and not over."""
    waiting: int


@attrs.frozen(kw_only=True)
class GatewayStats:
    """The whole gate at one moment."""

    session: AccountStats
    agents: tuple[AgentStats, ...]
    running_calls: int
    waiting: int
    cool_down: float
    """Seconds until calls may start again; 0 when there is no cool-down."""


HOLD = 5.0
"""Seconds for which a call waits at most for another to write their common prefix."""


@attrs.define(eq=False)
class GatewayClient:
    """The gate as one start of one agent sees it: a `Gateway`. Made by `ModelGateway.open_client`."""

    caller: GatewayCaller
    _gate: "ModelGateway"
    is_closed: bool = False

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """Wait until *intent* may be sent; the end of the block settles it, as `CallPermit` says.

        The call is booked on the asker's name, whatever the intent calls itself. Raises `BudgetSpent`, naming the
        budget, when the call can never fit, or can no longer fit when its turn comes; and `trio.ClosedResourceError`
        when the asker is or gets closed. Cancellation while waiting leaves nothing behind. Who holds a permit must
        not wait for another: the budget it keeps reserved may be what the other waits for.
        """
        if self.is_closed:
            raise trio.ClosedResourceError(f"{self.caller.agent} is no longer served")
        with await self._gate.wait_for_permit(self.caller, intent) as permit:
            yield permit

    def cool_down(self, seconds: float) -> None:
        """Let no call of the session start for *seconds* or a little more."""
        self._gate.cool_down(seconds)

    def close(self) -> None:
        """Turn away what waits, and settle what is under way as if it had ended now; twice is as good as once."""
        if not self.is_closed:
            self.is_closed = True
            self._gate.release(self.caller)


@attrs.define(eq=False)
class ModelGateway:
    """Budgets, places, the cool-down and the warm-up of one session. All methods are for tasks of one trio run."""

    clock: Clock
    """Decides how long prefixes stay warm. Everything else is on trio's clock."""
    session_limits: BudgetLimits = UNLIMITED
    max_calls: int = CONCURRENT_CALLS
    """Calls that may be under way at once."""
    warmup_hold: float = HOLD
    jitter: random.Random = attrs.field(factory=random.Random)
    earlier: PriorSpending = attrs.field(factory=PriorSpending)
    """What counts as spent from the beginning."""
    started: Callable[[CallPermit], None] | None = None
    """Told of each call that is admitted, before whoever asks for it."""
    settled: Callable[[CallCost], None] | None = None
    """Told of each admitted call once it is over and its place is free."""
    _books: BudgetAccounts = attrs.field(init=False)
    _queue: AdmissionQueue = attrs.field(factory=AdmissionQueue, init=False)
    _permits: dict[CallPermit, None] = attrs.field(factory=dict, init=False)
    """Under way, oldest first."""
    _calls: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    _pause: RateLimitPause = attrs.field(init=False)
    _warmup: CacheWarmup = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        session = Account("session", limits=self.session_limits, spent=self.earlier.session)
        self._books = BudgetAccounts(session, prior=self.earlier)
        self._pause = RateLimitPause(self.jitter)
        self._warmup = CacheWarmup(self.clock, self.warmup_hold)

    @asynccontextmanager
    async def open_client(
        self,
        name: str,
        *,
        incarnation: int = 1,
        parent: str | None = None,
        own: BudgetLimits | None = None,
        subtree: BudgetLimits | None = None,
    ) -> AsyncIterator[GatewayClient]:
        """The gate for one start of an agent; the end of the block closes it, and with it all that it holds.

        *own* limits the agent itself and *subtree* it and all it spawns; None leaves what an earlier start was given,
        and what was spent before counts. Raises `ValueError` for an unknown parent, or another than before.
        """
        self._books.open(name, parent, own, subtree)
        asker = GatewayClient(GatewayCaller(agent=name, incarnation=incarnation, parent=parent), self)
        try:
            yield asker
        finally:
            asker.close()

    def cool_down(self, seconds: float) -> None:
        """Let no call start for *seconds* or a little more; never shortens a cool-down."""
        self._pause.extend(trio.current_time(), seconds)

    def stats(self) -> GatewayStats:
        """How everything stands now."""
        waiting = Counter(waiter.caller.agent for waiter in self._queue.in_order(trio.current_time()))
        under_way = Counter(permit.caller.agent for permit in self._permits)
        return GatewayStats(
            session=AccountStats.of(self._books.session),
            agents=tuple(
                AgentStats(
                    name=name,
                    parent=accounts.parent,
                    own=AccountStats.of(accounts.own),
                    subtree=AccountStats.of(accounts.subtree),
                    running_calls=under_way[name],
                    waiting=waiting[name],
                )
                for name, accounts in self._books.agents.items()
            ),
            running_calls=len(self._permits),
            waiting=len(self._queue),
            cool_down=max(0.0, self._pause.closed_until - trio.current_time()),
        )

    async def wait_for_permit(self, asking: GatewayCaller, intent: CallIntent) -> CallPermit:
        """The permit for *intent*, which the caller closes. A cancelled wait leaves neither place nor reservation."""
        need = Amount.of(intent.model, intent.most)
        waiter = self._queue.join(asking, intent, need, self._books.accounts_of(asking.agent))
        self._refuse(waiter)
        has_heard = False
        try:
            while waiter.verdict is None:
                with trio.CancelScope() as waiter.alarm:
                    self._serve()
                    await waiter.wait()
            has_heard = True
        finally:
            if not has_heard:
                self._abandon(waiter)
        if isinstance(waiter.verdict, CallPermit):
            return waiter.verdict
        raise waiter.verdict

    def release(self, asking: GatewayCaller) -> None:
        """Turn away the calls of *asking* that wait, and close its permits."""
        for waiter in self._queue.in_order(trio.current_time()):
            if waiter.caller is asking:
                self._queue.decide(waiter, trio.ClosedResourceError(f"{asking.agent} is no longer served"))
        for permit in [permit for permit in self._permits if permit.caller is asking]:
            permit.close()
        self._serve()

    def _abandon(self, waiter: QueuedCall) -> None:
        """The wait was cancelled, perhaps just after it had come to its end."""
        self._queue.leave(waiter)
        if isinstance(waiter.verdict, CallPermit):
            waiter.verdict.void()
            waiter.verdict.close()
        self._serve()

    def _serve(self) -> None:
        """Start every call that may start now, and have somebody look again when time alone lets another start."""
        if len(self._permits) >= self.max_calls:
            return
        now = trio.current_time()
        again = math.inf
        claimed: set[Account] = set()
        for waiter in self._queue.in_order(now):
            if self._pause.opens_at > now:
                again = self._pause.opens_at
                break
            if (held := self._warmup.blocked_until(waiter.keys, now)) is not None:
                again = min(again, held)
            elif short := {account for account in waiter.accounts if not account.has_room(waiter.need)}:
                claimed |= set() if self._refuse(waiter) else short
            elif claimed.isdisjoint(waiter.accounts):
                self._start(waiter, now)
                if len(self._permits) == self.max_calls:
                    return
        self._schedule_check(again, now)

    def _schedule_check(self, at: float, now: float) -> None:
        ringer = self._queue.first()
        if ringer is None:
            self._pause.reset(now)
        else:
            ringer.alarm.deadline = at

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
        self._pause.started(now)
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
        """Turn *waiter* away if no settlement can make room for it any more; whether it was."""
        refused = refusal(waiter.accounts, waiter.need)
        if refused is not None:
            self._queue.decide(waiter, refused)
        return refused is not None

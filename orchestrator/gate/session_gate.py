"""The one gate of a session: every model call of every agent is admitted here, in the root.

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

from coterie.agents.gate import CONCURRENT_CALLS, Intent, Permit
from coterie.clock import Clock
from coterie.orchestrator.gate.budgets import UNLIMITED, Account, Amount, Books, Earlier, Limits, refusal
from coterie.orchestrator.gate.cooling import CoolDown
from coterie.orchestrator.gate.permit import Asking, SessionPermit, Settled
from coterie.orchestrator.gate.queueing import Queue, Waiter
from coterie.orchestrator.gate.standing import AccountStanding, AgentStanding, Standing
from coterie.orchestrator.gate.warmth import Warmth

HOLD = 5.0
"""Seconds for which a call waits at most for another to write their common prefix."""


@attrs.define(eq=False)
class Asker:
    """The gate as one start of one agent sees it: a `Gate`. Made by `SessionGate.open_asker`."""

    asking: Asking
    _gate: "SessionGate"
    is_closed: bool = False

    @asynccontextmanager
    async def admit(self, intent: Intent) -> AsyncIterator[Permit]:
        """Wait until *intent* may be sent; the end of the block settles it, as `SessionPermit` says.

        The call is booked on the asker's name, whatever the intent calls itself. Raises `BudgetSpent`, naming the
        budget, when the call can never fit, or can no longer fit when its turn comes; and `trio.ClosedResourceError`
        when the asker is or gets closed. Cancellation while waiting leaves nothing behind. Who holds a permit must
        not wait for another: the budget it keeps reserved may be what the other waits for.
        """
        if self.is_closed:
            raise trio.ClosedResourceError(f"{self.asking.agent} is no longer served")
        with await self._gate.wait_for_permit(self.asking, intent) as permit:
            yield permit

    def cool_down(self, seconds: float) -> None:
        """Let no call of the session start for *seconds* or a little more."""
        self._gate.cool_down(seconds)

    def close(self) -> None:
        """Turn away what waits, and settle what is under way as if it had ended now; twice is as good as once."""
        if not self.is_closed:
            self.is_closed = True
            self._gate.release(self.asking)


@attrs.define(eq=False)
class SessionGate:
    """Budgets, places, the cool-down and the warm-up of one session. All methods are for tasks of one trio run."""

    clock: Clock
    """Decides how long prefixes stay warm. Everything else is on trio's clock."""
    session_limits: Limits = UNLIMITED
    places: int = CONCURRENT_CALLS
    """Calls that may be under way at once."""
    hold: float = HOLD
    jitter: random.Random = attrs.field(factory=random.Random)
    earlier: Earlier = attrs.field(factory=Earlier)
    """What counts as spent from the beginning."""
    started: Callable[[SessionPermit], None] | None = None
    """Told of each call that is admitted, before whoever asks for it."""
    settled: Callable[[Settled], None] | None = None
    """Told of each admitted call once it is over and its place is free."""
    _books: Books = attrs.field(init=False)
    _queue: Queue = attrs.field(factory=Queue, init=False)
    _permits: dict[SessionPermit, None] = attrs.field(factory=dict, init=False)
    """Under way, oldest first."""
    _calls: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    _cooling: CoolDown = attrs.field(init=False)
    _warmth: Warmth = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        session = Account("session", limits=self.session_limits, spent=self.earlier.session)
        self._books = Books(session, earlier=self.earlier)
        self._cooling = CoolDown(self.jitter)
        self._warmth = Warmth(self.clock, self.hold)

    @asynccontextmanager
    async def open_asker(
        self,
        name: str,
        *,
        incarnation: int = 1,
        parent: str | None = None,
        own: Limits | None = None,
        subtree: Limits | None = None,
    ) -> AsyncIterator[Asker]:
        """The gate for one start of an agent; the end of the block closes it, and with it all that it holds.

        *own* limits the agent itself and *subtree* it and all it spawns; None leaves what an earlier start was given,
        and what was spent before counts. Raises `ValueError` for an unknown parent, or another than before.
        """
        self._books.open(name, parent, own, subtree)
        asker = Asker(Asking(agent=name, incarnation=incarnation, parent=parent), self)
        try:
            yield asker
        finally:
            asker.close()

    def cool_down(self, seconds: float) -> None:
        """Let no call start for *seconds* or a little more; never shortens a cool-down."""
        self._cooling.lengthen(trio.current_time(), seconds)

    def standing(self) -> Standing:
        """How everything stands now."""
        waiting = Counter(waiter.asking.agent for waiter in self._queue.in_order(trio.current_time()))
        under_way = Counter(permit.asking.agent for permit in self._permits)
        return Standing(
            session=AccountStanding.of(self._books.session),
            agents=tuple(
                AgentStanding(
                    name=name,
                    parent=accounts.parent,
                    own=AccountStanding.of(accounts.own),
                    subtree=AccountStanding.of(accounts.subtree),
                    under_way=under_way[name],
                    waiting=waiting[name],
                )
                for name, accounts in self._books.agents.items()
            ),
            under_way=len(self._permits),
            waiting=len(self._queue),
            cool_down=max(0.0, self._cooling.closed_until - trio.current_time()),
        )

    async def wait_for_permit(self, asking: Asking, intent: Intent) -> SessionPermit:
        """The permit for *intent*, which the caller closes. A cancelled wait leaves neither place nor reservation."""
        need = Amount.of(intent.model, intent.most)
        waiter = self._queue.join(asking, intent, need, self._books.drawn_by(asking.agent))
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
                self._forsake(waiter)
        if isinstance(waiter.verdict, SessionPermit):
            return waiter.verdict
        raise waiter.verdict

    def release(self, asking: Asking) -> None:
        """Turn away the calls of *asking* that wait, and close its permits."""
        for waiter in self._queue.in_order(trio.current_time()):
            if waiter.asking is asking:
                self._queue.decide(waiter, trio.ClosedResourceError(f"{asking.agent} is no longer served"))
        for permit in [permit for permit in self._permits if permit.asking is asking]:
            permit.close()
        self._serve()

    def _forsake(self, waiter: Waiter) -> None:
        """The wait was cancelled, perhaps just after it had come to its end."""
        self._queue.leave(waiter)
        if isinstance(waiter.verdict, SessionPermit):
            waiter.verdict.void()
            waiter.verdict.close()
        self._serve()

    def _serve(self) -> None:
        """Start every call that may start now, and have somebody look again when time alone lets another start."""
        if len(self._permits) >= self.places:
            return
        now = trio.current_time()
        again = math.inf
        claimed: set[Account] = set()
        for waiter in self._queue.in_order(now):
            if self._cooling.opens > now:
                again = self._cooling.opens
                break
            if (held := self._warmth.held_until(waiter.keys, now)) is not None:
                again = min(again, held)
            elif short := {account for account in waiter.accounts if not account.has_room(waiter.need)}:
                claimed |= set() if self._refuse(waiter) else short
            elif claimed.isdisjoint(waiter.accounts):
                self._start(waiter, now)
                if len(self._permits) == self.places:
                    return
        self._look_again(again, now)

    def _look_again(self, at: float, now: float) -> None:
        ringer = self._queue.first()
        if ringer is None:
            self._cooling.calm(now)
        else:
            ringer.alarm.deadline = at

    def _start(self, waiter: Waiter, now: float) -> None:
        for account in waiter.accounts:
            account.reserve(waiter.need)
        permit = SessionPermit(
            waiter.asking,
            waiter.intent,
            waiter.need,
            waiter.accounts,
            self._warmth.start(waiter.intent, now),
            self._begun,
            self._over,
            next(self._calls),
        )
        self._permits[permit] = None
        if self.started is not None:
            self.started(permit)
        self._cooling.started(now)
        self._queue.decide(waiter, permit)

    def _begun(self, permit: SessionPermit) -> None:
        self._warmth.begin(permit.warming)
        self._serve()

    def _over(self, permit: SessionPermit) -> None:
        outcome = permit.outcome()
        for account in permit.accounts:
            account.settle(permit.need, outcome.cost, is_estimated=outcome.is_estimated)
        del self._permits[permit]
        self._warmth.end(permit.warming)
        self._serve()
        if self.settled is not None:
            self.settled(outcome)

    def _refuse(self, waiter: Waiter) -> bool:
        """Turn *waiter* away if no settlement can make room for it any more; whether it was."""
        refused = refusal(waiter.accounts, waiter.need)
        if refused is not None:
            self._queue.decide(waiter, refused)
        return refused is not None

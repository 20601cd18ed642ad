"""Gateway protocol that every model call asks for admission, and the gateway of a single process.

In a session the gate is in the root, behind the agent's control socket; an agent that runs alone has the local
gate of this module. Both are one Protocol, so the model client cannot tell them apart and cannot go round them.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from decimal import Decimal
from typing import Literal, Protocol

import attrs
import trio

from coterie.agents.errors import BudgetSpent
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.usage import Usage

CONCURRENT_CALLS = 20
"""Calls a lone process may have under way: what one key bears without being rate limited by itself."""


PermitEnd = Literal["answered", "broke_off", "free", "unknown"]
"""How a permitted call ended. answered: settled with the usage of a whole reply. broke_off: settled with what was
reported until then. free: surely not billed. unknown: it may have been sent, and nothing was heard of it."""


class Permit(Protocol):
    """The right to send one request; held from admission to the end of its reply.

    A permit that is given back without a word counts as *unknown*: its whole reservation is spent.
    """

    def begin(self) -> None:
        """The reply has begun, so its cache entries can be read by others."""
        ...

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """Report what was really used. Never called for a request that was not answered.

        When the reply broke off (*is_whole* is false) its output is not known, and counts as all it could be.
        """
        ...

    def void(self) -> None:
        """Nothing was billed: the request never left, or an error was its whole answer."""
        ...


class Gateway(Protocol):
    """Admits calls one attempt at a time; a retry is a new admission."""

    def admit(self, intent: CallIntent) -> AbstractAsyncContextManager[Permit]:
        """Wait for a place and for the end of any cool-down; leaving the block gives the place back.

        Raises `BudgetSpent` when the call could cost more than is left.
        """
        ...

    def cool_down(self, seconds: float) -> None:
        """Let no call start for *seconds*: the service told one of us to wait, and means all."""
        ...


@attrs.define(eq=False)
class LocalPermit:
    """A place at the local gate; settling adds to the gate's sums."""

    _gate: "LocalGateway"
    _intent: CallIntent

    def begin(self) -> None:
        """Nobody waits for a local call's cache entry."""

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """Add *usage* and its price to what this process has spent."""
        billed = usage if is_whole else self._intent.at_most(usage)
        self._gate.used += billed
        self._gate.spent += self._intent.model.cost(billed)

    def void(self) -> None:
        """Nothing to take back: a lone process counts what it is told, and nothing else."""


@attrs.define(eq=False)
class LocalGateway:
    """The gate of a process that runs alone: bounded concurrency, one cool-down and one budget for all its calls."""

    budget: Decimal | None = None
    """Dollars that are never exceeded."""

    used: Usage = attrs.field(factory=Usage)
    spent: Decimal = Decimal(0)
    """Dollars, exact."""
    _places: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(CONCURRENT_CALLS))
    _closed_until: float = 0.0
    _reserved: Decimal = Decimal(0)

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """Wait out a cool-down, then for a place. Cancellation while waiting leaves nothing behind."""
        holder = object()
        await self._places.acquire_on_behalf_of(holder)
        try:
            # Another call may lengthen the cool-down while this one sleeps.
            while trio.current_time() < self._closed_until:  # noqa: ASYNC110 - a deadline that moves, not a poll
                await trio.sleep_until(self._closed_until)
            with self._reserve(intent):
                yield LocalPermit(self, intent)
        finally:
            self._places.release_on_behalf_of(holder)

    @contextmanager
    def _reserve(self, intent: CallIntent) -> Iterator[None]:
        reserve = intent.reserve
        if self.budget is not None and self.spent + self._reserved + reserve > self.budget:
            raise BudgetSpent(budget=self.budget, spent=self.spent, reserve=reserve)
        self._reserved += reserve
        try:
            yield
        finally:
            self._reserved -= reserve

    def cool_down(self, seconds: float) -> None:
        """Keep the gate closed for *seconds* from now; never shortens a cool-down."""
        self._closed_until = max(self._closed_until, trio.current_time() + seconds)

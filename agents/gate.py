"""The gate: what every model call asks before it is sent, and tells when it has ended.

In a session the gate is in the root, behind the agent's control socket; an agent that runs alone has the local
gate of this module. Both are one Protocol, so the model client cannot tell them apart and cannot go round them.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from decimal import Decimal
from typing import Protocol

import attrs
import trio

from coterie.agents.errors import BudgetSpent
from coterie.agents.models import Model
from coterie.agents.usage import Usage

CONCURRENT_CALLS = 20
"""Calls a lone process may have under way: what one key bears without being rate limited by itself."""


@attrs.frozen(kw_only=True)
class Intent:
    """What a call is going to do: enough to reserve its price and to order it among others."""

    agent: str
    purpose: str
    model: Model
    prompt_tokens: int
    """An estimate of the whole input."""
    max_tokens: int
    prefix: bytes
    """The running hash of the request's prefix; equal for siblings that share a cache entry."""

    @property
    def reserve(self) -> Decimal:
        """The most the call may cost: its padded input, all written to the cache, and all the output it may make."""
        padded = -(-self.prompt_tokens * 4 // 3)
        return self.model.cost(Usage(write_5m=padded, output=self.max_tokens))


class Permit(Protocol):
    """The right to send one request; held from admission to the end of its reply."""

    def begin(self) -> None:
        """The reply has begun, so its cache entries can be read by others."""
        ...

    def settle(self, usage: Usage) -> None:
        """Report what was really used. Never called for a request that was not answered."""
        ...


class Gate(Protocol):
    """Admits calls one attempt at a time; a retry is a new admission."""

    def admit(self, intent: Intent) -> AbstractAsyncContextManager[Permit]:
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

    _gate: "LocalGate"
    _model: Model

    def begin(self) -> None:
        """Nobody waits for a local call's cache entry."""

    def settle(self, usage: Usage) -> None:
        """Add *usage* and its price to what this process has spent."""
        self._gate.used += usage
        self._gate.spent += self._model.cost(usage)


@attrs.define(eq=False)
class LocalGate:
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
    async def admit(self, intent: Intent) -> AsyncIterator[Permit]:
        """Wait out a cool-down, then for a place. Cancellation while waiting leaves nothing behind."""
        holder = object()
        await self._places.acquire_on_behalf_of(holder)
        try:
            # Another call may lengthen the cool-down while this one sleeps.
            while trio.current_time() < self._closed_until:  # noqa: ASYNC110 - a deadline that moves, not a poll
                await trio.sleep_until(self._closed_until)
            with self._reserve(intent):
                yield LocalPermit(self, intent.model)
        finally:
            self._places.release_on_behalf_of(holder)

    @contextmanager
    def _reserve(self, intent: Intent) -> Iterator[None]:
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

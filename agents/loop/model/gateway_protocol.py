"""Protocol of the gateway that admits every model call, and the gateway of a single process.

In a session the gateway runs in the root, and agents reach it through their channel; an agent without a root uses
`LocalGateway`. The model client uses both through the same protocol and cannot bypass them.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from decimal import Decimal
from typing import Literal, Protocol

import attrs
import trio

from coterie.agents.errors import BudgetSpent
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.usage import Usage

CONCURRENT_CALLS = 20
"""Concurrent calls of a process without a root: one API key usually allows as many without rate limits."""

PermitEnd = Literal["answered", "broke_off", "free", "unknown"]
"""Result of a permitted call. answered: settled with the usage of a complete reply. broke_off: settled with the usage
reported so far. free: surely not billed. unknown: the request may have been sent, and no response arrived."""


class Permit(Protocol):
    """The right to send one request, held from admission to the end of its reply.

    A permit that is released without `settle` or `void` counts as *unknown*: its whole reservation is spent.
    """

    def begin(self) -> None:
        """Note that the reply has begun, so that other calls can read its cache entries."""

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """Report the actual usage. Never called for a request without a reply.

        If the reply broke off (*is_whole* is false), its output is unknown and counts as the largest possible one.
        """

    def void(self) -> None:
        """Note that nothing was billed: the request was not sent, or the API answered with an error."""


class Gateway(Protocol):
    """Admission of model calls; each attempt needs an admission of its own."""

    def admit(self, intent: CallIntent) -> AbstractAsyncContextManager[Permit]:
        """Wait for a free slot and for the end of any cool-down; the end of the block releases the slot.

        Raises `BudgetSpent` if the call could cost more than the rest of the budget.
        """

    def cool_down(self, seconds: float) -> None:
        """Let no call start for *seconds*, because the API rejected one for the rate or load of all."""


@attrs.define(eq=False)
class LocalPermit:
    """Permit of a `LocalGateway`; settling adds to the sums of the gateway."""

    _gate: "LocalGateway"
    _intent: CallIntent

    def begin(self) -> None:
        """Do nothing: no local call waits for another's cache entry."""

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """Add *usage* and its price to the sums of this process."""
        billed = usage if is_whole else self._intent.at_most(usage)
        self._gate.used += billed
        self._gate.spent += self._intent.model.cost(billed)

    def void(self) -> None:
        """Do nothing: the gateway counts only settled usage."""


@attrs.define(eq=False)
class LocalGateway:
    """Gateway of a process without a root: limited concurrency, one cool-down and one budget for all its calls."""

    budget: Decimal | None = None
    """Limit of the cost of all calls, in dollars."""
    used: Usage = attrs.field(factory=Usage)
    spent: Decimal = Decimal(0)
    """Cost of all calls so far in dollars, exact."""
    _slots: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(CONCURRENT_CALLS))
    _closed_until: float = 0.0
    _reserved: Decimal = Decimal(0)

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """Wait for a free slot, then for the end of a cool-down. Cancellation releases the slot."""
        holder = object()
        await self._slots.acquire_on_behalf_of(holder)
        try:
            # Another call may extend the cool-down while this one sleeps.
            while trio.current_time() < self._closed_until:  # noqa: ASYNC110 - a deadline that moves, not a poll
                await trio.sleep_until(self._closed_until)
            reserve = intent.reserve
            if self.budget is not None and self.spent + self._reserved + reserve > self.budget:
                raise BudgetSpent(budget=self.budget, spent=self.spent, reserve=reserve)
            self._reserved += reserve
            try:
                yield LocalPermit(self, intent)
            finally:
                self._reserved -= reserve
        finally:
            self._slots.release_on_behalf_of(holder)

    def cool_down(self, seconds: float) -> None:
        """Admit no call for *seconds* from now; never shortens a cool-down."""
        self._closed_until = max(self._closed_until, trio.current_time() + seconds)

"""Protocol of the gateway, the service that admits every model call, and a gateway inside a single process.

In a session the gateway runs in the root (supervisor process), and agents reach it over their connection. A process
without a root uses `LocalGateway`. The model client uses both by the same protocol and cannot bypass them.
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
"""Default maximum of model calls at the same time; one API key usually allows this many without rate limit errors."""

PermitEnd = Literal["answered", "broke_off", "free", "unknown"]
"""End of an admitted model call. answered: by a complete reply. broke_off: by an incomplete reply, with the usage
reported so far. free: surely not billed. unknown: the request may have been sent, and no response arrived."""


class Permit(Protocol):
    """Permission of the gateway to send one model request, valid from its admission to the end of the reply.

    If it ends without `settle` or `void`, a session's gateway charges the whole price that it reserved for the call.
    """

    def begin(self) -> None:
        """Record that the reply has begun, so that calls that wait for the cache entries of this one may start."""

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """Charge the reported *usage* instead of the reserved price. Never called for a request without a reply.

        If the reply broke off (*is_whole* is false), its output is unknown and counts as the largest possible one.
        """

    def void(self) -> None:
        """Record that the API bills nothing, because the request was not sent or was answered with an error."""


class Gateway(Protocol):
    """Service that admits model calls: each attempt to send a request waits for a permit and reserves its price."""

    def admit(self, intent: CallIntent) -> AbstractAsyncContextManager[Permit]:
        """Wait until the call *intent* may be sent, and yield its permit; the end of the block lets another call start.

        Raises `BudgetSpent` if the call could cost more than what is left of the budget.
        """

    def cool_down(self, seconds: float) -> None:
        """Start no model call for *seconds*, because the API rejected a call for a rate limit or overload."""


@attrs.define(eq=False)
class LocalPermit:
    """Permit for one model call of a `LocalGateway`; `settle` adds the call to the gateway's sums of usage and cost."""

    _gate: "LocalGateway"
    _intent: CallIntent

    def begin(self) -> None:
        """Do nothing, because a `LocalGateway` lets no call wait for the cache entries of another call."""

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """Add usage and cost of the call to the sums of the gateway; an incomplete reply counts with maximum output."""
        billed = usage if is_whole else self._intent.at_most(usage)
        self._gate.used += billed
        self._gate.spent += self._intent.model.cost(billed)

    def void(self) -> None:
        """Do nothing, because a `LocalGateway` adds only calls that were settled to its sums."""


@attrs.define(eq=False)
class LocalGateway:
    """Gateway for the model calls of one process without a session: limits concurrency and cost, and applies pauses."""

    budget: Decimal | None = None
    """Maximum cost of all calls together, in dollars; None for no limit."""
    used: Usage = attrs.field(factory=Usage)
    spent: Decimal = Decimal(0)
    """Exact cost of all calls so far, in dollars."""
    _slots: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(CONCURRENT_CALLS))
    _closed_until: float = 0.0
    _reserved: Decimal = Decimal(0)

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """Wait while too many calls run or a pause lasts, then yield a permit. Raises `BudgetSpent` if over budget."""
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
        """Start no model call for *seconds* from now; never shortens an earlier pause that lasts longer."""
        self._closed_until = max(self._closed_until, trio.current_time() + seconds)

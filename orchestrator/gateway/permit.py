"""Permit for one model call; the end of the call settles its reservation."""

from collections.abc import Callable
from decimal import Decimal
from typing import Self

import attrs

from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.gateway_protocol import PermitEnd
from coterie.agents.loop.model.usage import Usage
from coterie.orchestrator.gateway.budgets import Account
from coterie.orchestrator.gateway.cache_warmup import CacheWrite


@attrs.frozen(kw_only=True)
class GatewayCaller:
    """Agent incarnation that makes calls, and its parent."""

    agent: str
    incarnation: int = 1
    parent: str | None = None


@attrs.frozen(kw_only=True)
class CallCost:
    """End and cost of one admitted call."""

    caller: GatewayCaller
    intent: CallIntent
    end: PermitEnd
    usage: Usage
    cost: Decimal
    """Dollars."""
    call: int = 0
    """Sequence number of the call."""

    @property
    def is_estimated(self) -> bool:
        """True if usage and cost are upper bounds."""
        return self.end in ("broke_off", "unknown")


@attrs.define(eq=False)
class CallPermit:
    """Permit for one call; closing it settles the reservation.

    The charge depends on the last method called before.

    - `settle` (*answered*): charges the reported usage.
    - `settle` of an incomplete reply (*broke_off*): charges the reported input and the maximum output.
    - `void` (*free*): charges nothing.
    - neither (*unknown*): charges the whole reservation, because the request may have been billed.
    """

    caller: GatewayCaller
    intent: CallIntent
    need: Decimal
    accounts: tuple[Account, ...]
    warming: CacheWrite
    _begun: Callable[["CallPermit"], None]
    _over: Callable[["CallPermit"], None]
    call: int = 0
    """Sequence number of the call in its gateway."""
    is_over: bool = False
    _end: PermitEnd = "unknown"
    _usage: Usage | None = None

    def begin(self) -> None:
        """Report the start of the reply, so that calls waiting for its cache entries may start."""
        if not self.is_over:
            self._begun(self)

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """Store the usage; it is charged when the permit is closed."""
        self.begin()
        self._usage = usage
        self._end = "answered" if is_whole else "broke_off"

    def void(self) -> None:
        """Mark the call as not billed."""
        self._usage = None
        self._end = "free"

    def close(self) -> None:
        """Release the slot and settle the reservation. Idempotent."""
        if not self.is_over:
            self.is_over = True
            self._over(self)

    def outcome(self) -> CallCost:
        """Return the end and cost of the call, as known now."""
        usage = self._used()
        cost = self.intent.model.cost(usage)
        return CallCost(caller=self.caller, intent=self.intent, end=self._end, usage=usage, cost=cost, call=self.call)

    def _used(self) -> Usage:
        if self._end == "free":
            return Usage()
        if self._usage is None:
            return self.intent.most
        return self._usage if self._end == "answered" else self.intent.at_most(self._usage)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

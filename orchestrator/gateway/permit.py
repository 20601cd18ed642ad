"""Permit for one model call; its end replaces the dollars reserved in the budgets by the cost of the call."""

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
    """Agent that makes model calls: its name, the number of its start, and its parent."""

    agent: str
    incarnation: int = 1
    parent: str | None = None


@attrs.frozen(kw_only=True)
class CallCost:
    """How one admitted model call ended, its token usage and its cost."""

    caller: GatewayCaller
    intent: CallIntent
    end: PermitEnd
    usage: Usage
    cost: Decimal
    """Cost of the call in dollars."""
    call: int = 0
    """Sequence number of the call in its gateway."""

    @property
    def is_estimated(self) -> bool:
        """True if usage and cost are upper bounds, because the reply was incomplete or is unknown."""
        return self.end in ("broke_off", "unknown")


@attrs.define(eq=False)
class CallPermit:
    """Permission to send one model call. Closing it settles the reservation on the budgets.

    The charge depends on the last of these methods that was called.

    - `settle`: charges the reported usage; `CallCost.end` is "answered".
    - `settle` with `is_whole=False`: charges the reported input and the maximum output; end "broke_off".
    - `void`: charges nothing; end "free".
    - none of them: charges the whole reservation, because the API may have billed the request; end "unknown".
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
        """Record that the reply has begun, so that calls that wait for its prompt cache entries may start."""
        if not self.is_over:
            self._begun(self)

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """Store the *usage* to charge when the permit is closed; *is_whole* is false if the reply broke off."""
        self.begin()
        self._usage = usage
        self._end = "answered" if is_whole else "broke_off"

    def void(self) -> None:
        """Record that the API did not bill the call, so that nothing is charged."""
        self._usage = None
        self._end = "free"

    def close(self) -> None:
        """Settle the reservation and let another call start. Idempotent."""
        if not self.is_over:
            self.is_over = True
            self._over(self)

    def outcome(self) -> CallCost:
        """Return how the call ends and what it costs if the permit is closed now."""
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

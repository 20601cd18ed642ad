"""Permit for one model call; the end of the call settles its reservation."""

from collections.abc import Callable
from typing import Self

import attrs

from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.gateway_protocol import PermitEnd
from coterie.agents.loop.model.usage import Usage
from coterie.orchestrator.gateway.budgets import Account, Amount
from coterie.orchestrator.gateway.cache_warmup import CacheWrite


@attrs.frozen(kw_only=True)
class GatewayCaller:
    """Which start of which agent asks, and who spawned it."""

    agent: str
    incarnation: int = 1
    parent: str | None = None


@attrs.frozen(kw_only=True)
class CallCost:
    """How one admitted call ended, and what it cost."""

    caller: GatewayCaller
    intent: CallIntent
    end: PermitEnd
    usage: Usage
    cost: Amount
    call: int = 0
    """The number of the call."""

    @property
    def is_estimated(self) -> bool:
        """Whether usage and cost are upper bounds."""
        return self.end in ("broke_off", "unknown")


@attrs.define(eq=False)
class CallPermit:
    """The right to one call; the block that holds it settles the reservation when it ends, by what it was told last.

    - *answered*, by `settle`: the usage is booked.
    - *broke_off*, by `settle` of a reply that is not whole: its input as reported, and all the output it could make.
    - *free*, by `void`: nothing is booked.
    - *unknown*, by nothing: the request may have been billed, so the whole reservation is booked.
    """

    caller: GatewayCaller
    intent: CallIntent
    need: Amount
    accounts: tuple[Account, ...]
    warming: CacheWrite
    _begun: Callable[["CallPermit"], None]
    _over: Callable[["CallPermit"], None]
    call: int = 0
    """Counts the calls of a gate."""
    is_over: bool = False
    _end: PermitEnd = "unknown"
    _usage: Usage | None = None

    def begin(self) -> None:
        """Let the calls start that wait for this one's cache entries."""
        if not self.is_over:
            self._begun(self)

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """Take note of what was used; it is booked when the block ends."""
        self.begin()
        self._usage = usage
        self._end = "answered" if is_whole else "broke_off"

    def void(self) -> None:
        """Take note that nothing was billed."""
        self._usage = None
        self._end = "free"

    def close(self) -> None:
        """Give back the place and settle the reservation; nothing happens the second time."""
        if not self.is_over:
            self.is_over = True
            self._over(self)

    def outcome(self) -> CallCost:
        """How the call has ended, by what is known of it now."""
        usage = self._used()
        cost = Amount.of(self.intent.model, usage)
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

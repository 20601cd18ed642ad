"""A permit of the session's gate: what becomes of a call's reservation is decided by how the call ends."""

from collections.abc import Callable
from typing import Self

import attrs

from coterie.agents.gate import Intent, PermitEnd
from coterie.agents.usage import Usage
from coterie.orchestrator.gate.budgets import Account, Amount
from coterie.orchestrator.gate.warmth import Warming


@attrs.frozen(kw_only=True)
class Asking:
    """Which start of which agent asks, and who spawned it."""

    agent: str
    incarnation: int = 1
    parent: str | None = None


@attrs.frozen(kw_only=True)
class Settled:
    """How one admitted call ended, and what it cost."""

    asking: Asking
    intent: Intent
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
class SessionPermit:
    """The right to one call; the block that holds it settles the reservation when it ends, by what it was told last.

    - *answered*, by `settle`: the usage is booked.
    - *broke_off*, by `settle` of a reply that is not whole: its input as reported, and all the output it could make.
    - *free*, by `void`: nothing is booked.
    - *unknown*, by nothing: the request may have been billed, so the whole reservation is booked.
    """

    asking: Asking
    intent: Intent
    need: Amount
    accounts: tuple[Account, ...]
    warming: Warming
    _begun: Callable[["SessionPermit"], None]
    _over: Callable[["SessionPermit"], None]
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

    def outcome(self) -> Settled:
        """How the call has ended, by what is known of it now."""
        usage = self._used()
        cost = Amount.of(self.intent.model, usage)
        return Settled(asking=self.asking, intent=self.intent, end=self._end, usage=usage, cost=cost, call=self.call)

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

"""Choice of the cheapest time to live for a cached prefix, and the cost of keeping it alive."""

import math
from decimal import Decimal

import attrs

from coterie.agents.loop.conversation.cache_markers import CACHE_LIFETIMES
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.usage import Ttl, Usage

MARGIN = 20.0
"""Safety margin in seconds before the expiry of an entry, because a call may wait for admission."""
LEAST_LOSS = Decimal("0.01")
"""Dollars; a prefix whose loss costs less is not refreshed."""


@attrs.frozen(kw_only=True)
class TtlPlan:
    """One way to have a prefix cached, and its cost from now to the last expected read."""

    ttl: Ttl
    refreshes: int
    """Refresh calls in each wait; 0 lets the entry expire."""
    dollars: Decimal

    @property
    def interval(self) -> float:
        """Seconds from the last use of the prefix to its refresh."""
        return safe_lifetime(self.ttl)


@attrs.frozen(kw_only=True)
class TtlChoice:
    """The cheapest plan and the rejected ones."""

    best: TtlPlan
    others: tuple[TtlPlan, ...]
    """The rejected plans, cheapest first."""


@attrs.frozen(kw_only=True)
class KeepalivePlan:
    """Cost of keeping or losing a cached prefix whose next use is at an unknown time."""

    refresh: Decimal
    """Dollars of one refresh call."""
    loss: Decimal
    """Extra dollars of the next use if the entry has expired."""
    interval: float
    """Seconds from the last use of the prefix to a refresh."""

    def is_worth_another(self, spent: Decimal) -> bool:
        """Return True if another refresh pays off after *spent* dollars since the last use.

        Refreshing stops when the calls have cost as much as the loss. So the total is always less than twice the
        smallest possible cost, whenever the wait ends.
        """
        return self.loss >= LEAST_LOSS and spent + self.refresh <= self.loss


def choose_ttl(
    model: Model,
    *,
    prefix_tokens: int,
    wait: float,
    reads: int = 1,
    written: Ttl | None = None,
    has_thinking: bool = True,
) -> TtlChoice:
    """Choose the cheapest plan for a prefix that is written now and read *reads* times, each after *wait* seconds.

    *written* is the time to live of a prefix that is already cached: it costs nothing now and cannot be changed.
    With *has_thinking* a refresh asks for one token, because the API then rejects requests for none. Among plans of
    equal cost, the one with fewer calls wins, then the shorter time to live.
    """
    lives: tuple[Ttl, ...] = ("5m", "1h") if written is None else (written,)
    prefix = _Prefix(model=model, tokens=prefix_tokens, is_written=written is not None, has_thinking=has_thinking)
    counts = {(ttl, count): None for ttl in lives for count in (0, refreshes_needed(ttl, wait))}
    plans = [prefix.plan(ttl, count, wait=wait, reads=reads) for ttl, count in counts]
    best, *others = sorted(plans, key=lambda plan: (plan.dollars, plan.refreshes, CACHE_LIFETIMES[plan.ttl]))
    return TtlChoice(best=best, others=tuple(others))


def keepalive_plan(model: Model, *, prefix_tokens: int, ttl: Ttl, has_thinking: bool = True) -> KeepalivePlan:
    """Compute the costs for a prefix that was written with *ttl*; a prefix too short to be cached has no loss."""
    prefix = _Prefix(model=model, tokens=prefix_tokens, is_written=True, has_thinking=has_thinking)
    loss = prefix.write(ttl) - prefix.read()
    return KeepalivePlan(refresh=prefix.refresh(), loss=loss, interval=safe_lifetime(ttl))


def choose_next_ttl(
    model: Model, *, prefix_tokens: int, new_tokens: int, wait: float, has_thinking: bool = True
) -> Ttl:
    """Choose the cheaper time to live for *new_tokens* written behind a prefix, if a wait of *wait* seconds follows.

    Only the new tokens are paid for: a cache entry at their end includes everything before, for its own time to live.
    At equal cost, the shorter one wins.
    """
    lives: tuple[Ttl, ...] = ("5m", "1h")
    price = model.price(prefix_tokens)
    written = {"5m": price.of(Usage(write_5m=new_tokens)), "1h": price.of(Usage(write_1h=new_tokens))}

    def dollars(ttl: Ttl) -> Decimal:
        upkeep = keepalive_plan(model, prefix_tokens=prefix_tokens, ttl=ttl, has_thinking=has_thinking)
        return written[ttl] + min(refreshes_needed(ttl, wait) * upkeep.refresh, upkeep.loss)

    return min(lives, key=dollars)


def safe_lifetime(ttl: Ttl) -> float:
    """Seconds without use that a cache entry surely survives."""
    return CACHE_LIFETIMES[ttl] - MARGIN


def refreshes_needed(ttl: Ttl, wait: float) -> int:
    """Number of refresh calls that keep an entry alive for *wait* seconds."""
    return max(0, math.ceil(wait / safe_lifetime(ttl)) - 1)


def refresh_max_tokens(*, has_thinking: bool) -> int:
    """Return `max_tokens` of a refresh call: 0, or 1 because thinking requires output."""
    return 1 if has_thinking else 0


@attrs.frozen(kw_only=True)
class _Prefix:
    model: Model
    tokens: int
    is_written: bool
    has_thinking: bool

    def plan(self, ttl: Ttl, refreshes: int, *, wait: float, reads: int) -> TtlPlan:
        survives = wait / (refreshes + 1) <= safe_lifetime(ttl)
        use = self.read() if survives else self.write(ttl)
        first = Decimal(0) if self.is_written else self.write(ttl)
        return TtlPlan(ttl=ttl, refreshes=refreshes, dollars=first + reads * (refreshes * self.refresh() + use))

    def write(self, ttl: Ttl) -> Decimal:
        if not self.is_cacheable:
            return self.model.cost(Usage(input=self.tokens))
        usage = Usage(write_5m=self.tokens) if ttl == "5m" else Usage(write_1h=self.tokens)
        return self.model.cost(usage)

    def read(self) -> Decimal:
        return self.model.cost(Usage(read=self.tokens) if self.is_cacheable else Usage(input=self.tokens))

    def refresh(self) -> Decimal:
        one = Usage(output=refresh_max_tokens(has_thinking=self.has_thinking))
        return self.read() + self.model.price(self.tokens).of(one)

    @property
    def is_cacheable(self) -> bool:
        return self.tokens >= self.model.cache_minimum

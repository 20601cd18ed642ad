"""Choice of the cheapest cache lifetime for a prefix, and the cost of keeping it alive."""

import math
from decimal import Decimal

import attrs

from coterie.agents.loop.conversation.cache_markers import CACHE_LIFETIMES
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.usage import Ttl, Usage

MARGIN = 20.0
"""Seconds before the end of its life from which an entry is no longer counted on: a call may wait at the gate."""
LEAST_LOSS = Decimal("0.01")
"""Dollars: a prefix whose loss costs less is not worth a call."""


@attrs.frozen(kw_only=True)
class TtlPlan:
    """One way to have a prefix, and what it costs from now to the last expected read."""

    ttl: Ttl
    refreshes: int
    """Calls in each wait that do nothing but read the prefix; 0: it is left alone."""
    dollars: Decimal

    @property
    def interval(self) -> float:
        """Seconds from the last use of the prefix to a refresh of it."""
        return safe_lifetime(self.ttl)


@attrs.frozen(kw_only=True)
class TtlChoice:
    """The cheapest plan, and those it was preferred to."""

    best: TtlPlan
    others: tuple[TtlPlan, ...]
    """From cheap to dear."""


@attrs.frozen(kw_only=True)
class KeepalivePlan:
    """A prefix in the cache that will be read again nobody knows when: what it costs to keep it, and to lose it."""

    refresh: Decimal
    """Dollars of one call that keeps it."""
    loss: Decimal
    """Dollars that the next use costs more if it is gone."""
    interval: float
    """Seconds from the last use of it to a refresh."""

    def is_worth_another(self, spent: Decimal) -> bool:
        """Whether to refresh it once more, when *spent* dollars went into that since its last use.

        It is, until the calls have cost what they were to save. So whenever the wait ends, what was paid is less than
        twice the least that it could have cost.
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
    """The cheapest way to have a prefix that is written now, and read *reads* times with *wait* seconds before each.

    *written* says that it was just written or read, and lives for that long: nothing is to be paid now, and its life
    cannot be changed. *has_thinking* makes a refresh ask for one token, because the API refuses to produce none.
    Of plans that cost the same the one with fewer calls is chosen, then the shorter life.
    """
    lives: tuple[Ttl, ...] = ("5m", "1h") if written is None else (written,)
    prefix = _Prefix(model=model, tokens=prefix_tokens, is_written=written is not None, has_thinking=has_thinking)
    counts = {(ttl, count): None for ttl in lives for count in (0, refreshes_needed(ttl, wait))}
    plans = [prefix.plan(ttl, count, wait=wait, reads=reads) for ttl, count in counts]
    best, *others = sorted(plans, key=lambda plan: (plan.dollars, plan.refreshes, CACHE_LIFETIMES[plan.ttl]))
    return TtlChoice(best=best, others=tuple(others))


def keepalive_plan(model: Model, *, prefix_tokens: int, ttl: Ttl, has_thinking: bool = True) -> KeepalivePlan:
    """What it takes to keep a prefix that was written to live for *ttl*; one too short to be cached is no loss."""
    prefix = _Prefix(model=model, tokens=prefix_tokens, is_written=True, has_thinking=has_thinking)
    loss = prefix.write(ttl) - prefix.read()
    return KeepalivePlan(refresh=prefix.refresh(), loss=loss, interval=safe_lifetime(ttl))


def choose_next_ttl(
    model: Model, *, prefix_tokens: int, new_tokens: int, wait: float, has_thinking: bool = True
) -> Ttl:
    """The cheaper life for *new_tokens* that are written behind a prefix, if a wait of *wait* seconds comes then.

    Only they are paid for: an entry at their end holds all before them too, for its own life, whatever lives those
    entries were given. Of lives that cost the same the shorter is chosen.
    """
    lives: tuple[Ttl, ...] = ("5m", "1h")
    price = model.price(prefix_tokens)
    written = {"5m": price.of(Usage(write_5m=new_tokens)), "1h": price.of(Usage(write_1h=new_tokens))}

    def dollars(ttl: Ttl) -> Decimal:
        upkeep = keepalive_plan(model, prefix_tokens=prefix_tokens, ttl=ttl, has_thinking=has_thinking)
        return written[ttl] + min(refreshes_needed(ttl, wait) * upkeep.refresh, upkeep.loss)

    return min(lives, key=dollars)


def safe_lifetime(ttl: Ttl) -> float:
    """Seconds of rest that an entry surely survives."""
    return CACHE_LIFETIMES[ttl] - MARGIN


def refreshes_needed(ttl: Ttl, wait: float) -> int:
    """Refresh calls that keep an entry alive for *wait* seconds."""
    return max(0, math.ceil(wait / safe_lifetime(ttl)) - 1)


def refresh_max_tokens(*, has_thinking: bool) -> int:
    """What a refresh call asks for: nothing, or the least that is allowed with thinking on."""
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

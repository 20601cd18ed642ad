"""Cheapest time to live of a prefix: by table, and compared with an enumeration of all plans."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.agents.layers.prompt_cache.cache_ttl import (
    LEAST_LOSS,
    MARGIN,
    choose_next_ttl,
    choose_ttl,
    keepalive_plan,
    refresh_max_tokens,
)
from coterie.agents.loop.conversation.cache_markers import CACHE_LIFETIMES
from coterie.agents.loop.model.catalog import Model, load_models
from coterie.agents.loop.model.usage import Ttl, Usage

MODELS = load_models()
MINUTE = 60.0


@pytest.mark.parametrize(
    ("model", "minutes", "reads", "ttl", "refreshes", "dollars"),
    [
        ("opus", 2, 1, "5m", 0, "0.52"),
        ("opus", 2, 50, "5m", 0, "1.50"),
        ("opus", 20, 1, "5m", 4, "0.60008"),
        ("opus", 58, 1, "5m", 12, "0.76024"),
        ("opus", 58, 3, "1h", 0, "0.86"),
        ("opus", 90, 1, "1h", 1, "0.84002"),
        ("opus", 24 * 60, 1, "5m", 0, "1.00"),
        ("fable", 20, 1, "5m", 4, "1.10016"),
        ("fable", 58, 1, "5m", 12, "1.26048"),
        ("claude-opus-5", 20, 1, "5m", 4, "0.87510"),
        ("claude-opus-5", 45, 1, "1h", 0, "1.05"),
        ("claude-haiku-4-5", 45, 1, "1h", 0, "0.21"),
        ("haiku", 45, 1, "1h", 0, "0.021"),
    ],
)
def test_cheapest_ttl_of_100k_tokens(
    model: str, minutes: float, reads: int, ttl: str, refreshes: int, dollars: str
) -> None:
    choice = choose_ttl(MODELS.get(model), prefix_tokens=100_000, wait=minutes * MINUTE, reads=reads)
    assert (choice.best.ttl, choice.best.refreshes, choice.best.dollars) == (ttl, refreshes, Decimal(dollars))
    assert all(other.dollars >= choice.best.dollars for other in choice.others)


def test_written_prefix_can_only_be_refreshed_or_left() -> None:
    """A parent waits for its children: four refreshes cost less than writing the prefix again."""
    opus = MODELS.get("opus")
    choice = choose_ttl(opus, prefix_tokens=100_000, wait=20 * MINUTE, written="5m")
    assert [(plan.ttl, plan.refreshes, plan.dollars) for plan in (choice.best, *choice.others)] == [
        ("5m", 4, Decimal("0.10008")),
        ("5m", 0, Decimal("0.50")),
    ]
    assert choice.best.interval == 280


def test_uncacheable_prefix_is_never_refreshed() -> None:
    choice = choose_ttl(MODELS.get("opus"), prefix_tokens=500, wait=20 * MINUTE)
    assert (choice.best.ttl, choice.best.refreshes, choice.best.dollars) == ("5m", 0, Decimal("0.004"))


def test_refresh_asks_for_one_token_only_with_thinking() -> None:
    assert (refresh_max_tokens(has_thinking=True), refresh_max_tokens(has_thinking=False)) == (1, 0)


def simulate(model: Model, ttl: Ttl, tokens: int, uses: list[tuple[float, int]]) -> Decimal:
    """Simulate a cache with one prefix, and return the cost of calls at *uses* (second, output tokens)."""
    dollars, alive_until = Decimal(0), float("-inf")
    for second, output in uses:
        if tokens < model.cache_minimum:
            usage = Usage(input=tokens, output=output)
        elif second <= alive_until:
            usage = Usage(read=tokens, output=output)
        else:
            usage = Usage(write_5m=tokens, output=output) if ttl == "5m" else Usage(write_1h=tokens, output=output)
        dollars += model.cost(usage)
        alive_until = second + CACHE_LIFETIMES[ttl] - MARGIN
    return dollars


def uses(wait: int, reads: int, interval: float, output: int) -> list[tuple[float, int]]:
    """Return the uses for a write, then reads after *wait* seconds each, with a refresh every *interval* seconds."""
    found: list[tuple[float, int]] = [(0.0, 0)]
    for read in range(reads):
        begin = float(read * wait)
        second = begin + interval
        while second < begin + wait:
            found.append((second, output))
            second += interval
        found.append((begin + wait, 0))
    return found


INTERVALS = (float("inf"), *(float(seconds) for seconds in range(20, 300, 20)), 900.0, 1790.0, 3580.0, 3600.0)


@settings(max_examples=20)
@given(
    model=st.sampled_from(sorted(MODELS.models)),
    tokens=st.integers(0, 200_000),
    wait=st.integers(1, 3 * 3600),
    reads=st.integers(0, 3),
    has_thinking=st.booleans(),
)
def test_no_other_ttl_or_refresh_interval_is_cheaper(
    model: str, tokens: int, wait: int, reads: int, *, has_thinking: bool
) -> None:
    chosen = MODELS.get(model)
    choice = choose_ttl(chosen, prefix_tokens=tokens, wait=wait, reads=reads, has_thinking=has_thinking)
    output = refresh_max_tokens(has_thinking=has_thinking)
    lives: tuple[Ttl, ...] = ("5m", "1h")
    prices = [simulate(chosen, ttl, tokens, uses(wait, reads, each, output)) for ttl in lives for each in INTERVALS]
    assert choice.best.dollars == min(prices)


@settings(max_examples=20)
@given(
    model=st.sampled_from(sorted(MODELS.models)),
    tokens=st.integers(0, 200_000),
    wait=st.integers(1, 48 * 3600),
    ttl=st.sampled_from(["5m", "1h"]),
)
def test_refreshes_at_most_double_the_least_cost_of_any_wait(model: str, tokens: int, wait: int, ttl: Ttl) -> None:
    """Refresh while `is_worth_another` is True, then read or write; a prefix with a small loss is not refreshed."""
    chosen = MODELS.get(model)
    upkeep = keepalive_plan(chosen, prefix_tokens=tokens, ttl=ttl)
    spent, used = Decimal(0), 0.0
    while used + upkeep.interval < wait and upkeep.is_worth_another(spent):
        spent, used = spent + upkeep.refresh, used + upkeep.interval
    read = chosen.cost(Usage(read=tokens) if tokens >= chosen.cache_minimum else Usage(input=tokens))
    least = choose_ttl(chosen, prefix_tokens=tokens, wait=wait, written=ttl).best.dollars
    paid = spent + (read if wait - used <= upkeep.interval else read + upkeep.loss)
    assert least <= paid <= (2 * least if upkeep.loss >= LEAST_LOSS else least + LEAST_LOSS)


@pytest.mark.parametrize(
    ("new", "minutes", "ttl"),
    [(100_000, 20, "5m"), (5_000, 20, "1h"), (5_000, 4, "5m"), (30_000, 20, "5m"), (0, 4, "5m"), (5_000, 600, "1h")],
)
def test_ttl_behind_a_100k_prefix_is_the_cheapest_for_the_next_wait(new: int, minutes: float, ttl: str) -> None:
    opus = MODELS.get("opus")
    assert choose_next_ttl(opus, prefix_tokens=100_000, new_tokens=new, wait=minutes * MINUTE) == ttl


@pytest.mark.parametrize(("tokens", "is_worth_it"), [(500, False), (2_000, False), (2_100, True)])
def test_prefix_with_small_loss_is_not_refreshed(tokens: int, *, is_worth_it: bool) -> None:
    upkeep = keepalive_plan(MODELS.get("opus"), prefix_tokens=tokens, ttl="5m")
    assert upkeep.is_worth_another(Decimal(0)) == is_worth_it

"""Choice of the time to live of a prefix, and the cost of its refreshes."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.layers.prompt_cache.keepalive import LEAST_LOSS, choose_next_ttl, keepalive_plan, refreshes_needed
from coterie.agents.loop.model.catalog import load_models
from coterie.agents.loop.model.usage import Ttl, Usage
from tests.examples import examples

MODELS = load_models()
MINUTE = 60.0


@pytest.mark.parametrize(
    ("model", "ttl", "has_thinking", "refresh", "loss"),
    [
        ("opus", "5m", True, "0.02002", "0.48"),
        ("opus", "5m", False, "0.02", "0.48"),
        ("opus", "1h", True, "0.02002", "0.78"),
    ],
)
def test_refresh_and_loss_of_100k_tokens(model: str, ttl: Ttl, refresh: str, loss: str, *, has_thinking: bool) -> None:
    plan = keepalive_plan(MODELS.get(model), prefix_tokens=100_000, ttl=ttl, has_thinking=has_thinking)
    assert (plan.refresh, plan.loss) == (Decimal(refresh), Decimal(loss))
    assert plan.interval == {"5m": 280, "1h": 3580}[ttl]


@examples(20)
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
    left_alone = read if wait <= upkeep.interval else read + upkeep.loss
    least = min(left_alone, refreshes_needed(ttl, wait) * upkeep.refresh + read)
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

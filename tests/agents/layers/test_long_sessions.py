"""The layers in long sessions of real parts: versions of `benchmarks/layers.py` and `benchmarks/context.py`."""

import functools

import msgspec
import pytest

from benchmarks.context import (
    BY_NOTES,
    NOTES_SHARE,
    OTHERS,
    RESULTS,
    SEED,
    WHOLE,
    by_notes,
    figures_of,
    notes_share,
    run_all,
    table,
)
from benchmarks.context_outcome import Outcome
from benchmarks.context_session import Size, build_days
from benchmarks.context_strategies import OURS, STRATEGIES
from benchmarks.layers import BASELINE, UNFOLLOWED, setups
from benchmarks.long_session import LongSession, build_session
from benchmarks.recorded_runs import DIRECTORY, has_runs
from benchmarks.replayed_tools import definitions, session_tools
from benchmarks.session_run import Setup, run_session
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.prompts import render
from coterie.scenarios.api_server.caching.token_count import BYTES_PER_TOKEN
from tests.data import absent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_runs(), reason=absent(DIRECTORY)),
]

CALLS = 70
WINDOW = 70_000
"""A window so small that the API clears in a session this short."""
LAYERED = {setup.name: setup for setup in setups(WINDOW) if setup.name not in (BASELINE, "1", UNFOLLOWED)}

ALL_MECHANISMS = "1 + 2a + 2b + 2c"


@functools.cache
def session() -> LongSession:
    return build_session(CALLS, 4)


def must_fire(setup: Setup) -> set[str]:
    """Return the mechanisms that must fire; together with cheaper ones, the API may have nothing to clear."""
    return set(setup.mechanisms) - ({"api"} if len(setup.mechanisms) > 2 else set())


@pytest.mark.parametrize(
    "name", [name if name == ALL_MECHANISMS else pytest.param(name, marks=pytest.mark.soak) for name in LAYERED]
)
async def test_long_session_fires_every_mechanism_without_unannounced_cache_miss(name: str) -> None:
    played = await run_session(session(), LAYERED[name])
    assert [entry["status"] for entry in played.requests] == [200] * len(session().replies)
    assert not {mechanism for mechanism in must_fire(LAYERED[name]) if not played.fired(mechanism).times}
    assert played.breaks(is_expired=False) == []
    assert played.repeats == 0


def short(behind_prompt: int) -> Size:
    """Use short results, so that the small window holds as many as the large one holds long ones.

    Its size is counted from the end of tools and system, so that it holds the same work when there is a tool more.
    """
    size = Size(calls=100, window=behind_prompt, looks=(1, 2), weights=(1, 0, 0, 0), lines=(100,))
    prompt = [*definitions(session_tools(build_days(size, SEED))), text_block(render("agent"))]
    return msgspec.structs.replace(size, window=behind_prompt + sum(map(len, prompt)) // BYTES_PER_TOKEN)


SHORT_RESULTS = 50_000
"""Tolerance in tokens; tool results depend slightly on the installed packages."""


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("behind_prompt", [50_000, 51_000, 52_000, 53_000, 53_500])
async def test_all_layers_keep_user_texts_and_cost_less_than_other_strategies(
    behind_prompt: int,
) -> None:
    size = short(behind_prompt)
    check_work(await run_all([OURS.name, *OTHERS], size), size, results=SHORT_RESULTS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_layers_hold_their_promise_over_three_thousand_turns() -> None:
    outcomes = await run_all(list(STRATEGIES), WHOLE, compares_turns=True)
    print("\n".join(table(figures_of(outcomes))))  # noqa: T201 - shown by `pytest -rP`
    check_work(outcomes, WHOLE, results=RESULTS)


def check_work(outcomes: dict[str, Outcome], size: Size, results: int) -> None:
    """Check the promises about one agent and the cost of its layers."""
    for outcome in outcomes.values():
        assert outcome.ended == []
        assert outcome.turns >= size.calls
        assert outcome.results >= results
        assert outcome.largest <= size.window
    ours = outcomes[OURS.name]
    assert ours.dollars < min(outcomes[name].dollars for name in OTHERS)
    assert ours.failures == []
    assert ours.breaks == []
    assert ours.words > 0
    assert ours.lost_words == 0
    assert ours.compactions
    assert by_notes(ours) >= BY_NOTES
    assert 0 < notes_share(ours) <= NOTES_SHARE

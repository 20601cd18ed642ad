"""An agent that works for days in a small window: `benchmarks/context.py`, in short and, as a soak test, whole."""

import pytest

from benchmarks.context import (
    BY_NOTES,
    NOTES_SHARE,
    OTHERS,
    RESULTS,
    WHOLE,
    by_notes,
    figures_of,
    notes_share,
    play_all,
    table,
)
from benchmarks.context_outcome import Outcome
from benchmarks.context_session import Size, build_days
from benchmarks.context_strategies import OURS, STRATEGIES
from benchmarks.recorded_runs import DIRECTORY, has_runs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_runs(), reason=f"{DIRECTORY} is not there"),
]


SHORT = Size(calls=100, window=61_000, looks=(1, 2), weights=(1, 0, 0, 0), lines=(100,))
"""With short results, of which the small window holds as many as the large one does of long ones."""


@pytest.mark.parametrize(
    ("size", "results"),
    [
        pytest.param(SHORT, 60_000, id="short"),
        pytest.param(WHOLE, RESULTS, id="whole", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
async def test_an_agent_works_on_loses_no_word_of_its_user_and_costs_less_than_with_other_strategies(
    size: Size, results: int
) -> None:
    outcomes = await play_all(list(STRATEGIES) if size == WHOLE else [OURS.name, *OTHERS], size)
    if size == WHOLE:
        print("\n".join(table(figures_of(outcomes))))  # noqa: T201 - shown by `pytest -rP`
    for outcome in outcomes.values():
        assert outcome.ended == []
        assert outcome.turns >= size.calls
        assert outcome.results >= results
        assert outcome.largest <= size.window
    ours = outcomes[OURS.name]
    check_layers(ours)
    assert ours.dollars < min(outcomes[name].dollars for name in OTHERS)


def check_layers(ours: Outcome) -> None:
    """What is promised of all layers together."""
    assert ours.failures == []
    assert ours.breaks == []
    assert ours.words > 0
    assert ours.lost_words == 0
    assert ours.compactions
    assert by_notes(ours) >= BY_NOTES
    assert 0 < notes_share(ours) <= NOTES_SHARE


def test_runs_that_are_used_up_are_played_again_in_another_order() -> None:
    size = Size(calls=1_500, window=70_000, looks=(1,))
    session = build_days(size, 1)
    prompts = [exchange.prompt for exchange in session.exchanges]
    assert len(session.replies) >= size.calls
    assert len(set(prompts)) < len(prompts)
    assert session == build_days(size, 1)

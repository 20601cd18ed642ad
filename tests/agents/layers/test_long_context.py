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


def short(window: int) -> Size:
    """With short results, of which the small window holds as many as the large one does of long ones."""
    return Size(calls=100, window=window, looks=(1, 2), weights=(1, 0, 0, 0), lines=(100,))


@pytest.mark.parametrize(
    "window",
    [
        55_000,
        59_000,
        *(
            pytest.param(window, marks=[pytest.mark.soak, pytest.mark.timeout(600)])
            for window in (53_000, 57_000, 61_000)
        ),
    ],
)
async def test_an_agent_works_on_loses_no_word_of_its_user_and_costs_less_than_with_other_strategies(
    window: int,
) -> None:
    """In whatever window: if one alone had to fit, each tool more in the prompt would make another necessary."""
    check_work(await play_all([OURS.name, *OTHERS], short(window)), short(window), results=60_000)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_so_it_does_through_three_thousand_turns() -> None:
    outcomes = await play_all(list(STRATEGIES), WHOLE)
    print("\n".join(table(figures_of(outcomes))))  # noqa: T201 - shown by `pytest -rP`
    check_work(outcomes, WHOLE, results=RESULTS)


def check_work(outcomes: dict[str, Outcome], size: Size, results: int) -> None:
    """What is promised of an agent, and of the price of its layers."""
    for outcome in outcomes.values():
        assert outcome.ended == []
        assert outcome.turns >= size.calls
        assert outcome.results >= results
        assert outcome.largest <= size.window
    check_layers(outcomes[OURS.name])
    assert outcomes[OURS.name].dollars < min(outcomes[name].dollars for name in OTHERS)


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

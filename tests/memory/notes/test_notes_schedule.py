"""When notes are updated: by growth of the context, calls and cost."""

from decimal import Decimal

import attrs
import pytest

from coterie.memory.layer_settings import NotesSettings
from coterie.memory.notes.notes_schedule import MOST_DOUBLINGS, NotesSchedule, UpdateThreshold

RICH = Decimal(100)
CHEAP = Decimal("0.01")


def schedule(**facts: object) -> NotesSchedule:
    return NotesSchedule(settings=NotesSettings(), turns_usd=RICH, **facts)  # type: ignore[arg-type]  # by name


def begun(**facts: object) -> NotesSchedule:
    return schedule(since=20_000, has_begun=True, **facts)


def is_due(schedule: NotesSchedule, tokens: int, usd: Decimal) -> bool:
    return schedule.delay(tokens, usd) is None


FAILED = schedule().after_start(10_000).after_failure(CHEAP).after_turn(19_999, 3, CHEAP)
SHRUNK = begun().after_shrink(12_000).after_turn(13_000, 3, CHEAP)
CLEARED = begun().after_turn(8_000, 3, CHEAP)


@pytest.mark.parametrize(
    ("schedule", "tokens"),
    [
        pytest.param(schedule(), 10_000, id="the first update"),
        pytest.param(schedule(since=150_000), 160_000, id="a fork, after its inherited context"),
        pytest.param(begun(calls=3), 25_000, id="a later update"),
        pytest.param(begun(is_pausing=True), 25_000, id="a later update in a pause"),
        pytest.param(FAILED, 20_000, id="after two steps, if the first update failed"),
        pytest.param(SHRUNK, 17_000, id="after growth from a smaller context"),
        pytest.param(CLEARED, 13_000, id="after growth from a cleared context"),
    ],
)
def test_update_is_due_at_a_context_size_and_not_before(schedule: NotesSchedule, tokens: int) -> None:
    assert not is_due(schedule, tokens - 1, CHEAP)
    assert is_due(schedule, tokens, CHEAP)


def test_calls_are_counted_from_the_start_of_an_update() -> None:
    counted = begun(calls=3).after_start(25_000).after_turn(26_000, 2, CHEAP)
    assert (counted.calls, counted.is_pausing) == (2, False)
    assert not is_due(counted, 30_000, CHEAP)
    assert is_due(counted.after_turn(30_000, 1, CHEAP), 30_000, CHEAP)
    assert is_due(counted.after_turn(30_000, 0, CHEAP), 30_000, CHEAP)


def test_updates_use_their_share_of_the_cost_over_a_long_run() -> None:
    """Each turn adds 1,500 tokens and reads the context; an update reads it too, and writes."""
    now, tokens, updates = NotesSchedule(settings=NotesSettings()), 3_000, 0
    for _ in range(3_000):
        tokens = tokens + 1_500 if tokens < 160_000 else 40_000
        turn = Decimal(tokens) * 3 / 10_000_000 + Decimal("0.01")
        now = now.after_turn(tokens, 1, turn)
        update = turn + Decimal("0.01")
        if is_due(now, tokens, update):
            now, updates = now.after_start(tokens).after_success(update), updates + 1
    assert now.notes_usd <= now.turns_usd * 8 / 100
    assert now.notes_usd > now.turns_usd * 7 / 100
    assert updates > 80


def test_failure_doubles_the_wait_up_to_a_limit_until_success() -> None:
    failing, waits = begun(), []
    for _ in range(MOST_DOUBLINGS + 2):
        failing = failing.after_failure(CHEAP)
        waits.append(failing.wait)
    assert waits == [10_000, 20_000, 40_000, 80_000, 160_000, 160_000, 160_000]
    assert failing.notes_usd == 7 * CHEAP
    assert failing.after_success(CHEAP).wait == 5_000


FULL = UpdateThreshold(tokens=167_000, most=40_000)


def test_half_the_cost_limit_is_reserved_for_urgent_updates() -> None:
    """The reserve is spent when the next turn may fill the context and exceed the tokens that may stay."""
    paid = begun(need=FULL, calls=3).after_success(Decimal("3.99"))
    assert paid.delay(90_000, CHEAP) is None
    paid = paid.after_success(CHEAP)
    assert [paid.is_close(tokens) for tokens in (146_999, 147_000)] == [False, True]
    assert paid.delay(146_999, CHEAP, unknown=40_000) == "money"
    assert paid.delay(147_000, CHEAP, unknown=20_000) == "money"
    assert paid.delay(147_000, CHEAP, unknown=20_001) is None
    assert paid.after_success(Decimal(4)).delay(147_000, CHEAP, unknown=40_000) == "money"
    assert not begun().is_close(10**9), "without a threshold nothing is reserved"
    assert begun(calls=3).after_success(Decimal("7.99")).delay(167_000, CHEAP) is None


def test_new_text_counts_though_it_replaced_cleared_text() -> None:
    """The context size is unchanged; but after a failure it must grow, so that not every turn retries."""
    flat = attrs.evolve(begun(need=FULL, calls=3), since=150_000)
    assert flat.delay(150_000, CHEAP, unknown=4_999) == "growth"
    assert flat.delay(150_000, CHEAP, unknown=5_000) is None
    assert flat.after_failure(CHEAP).delay(150_000, CHEAP, unknown=90_000) == "growth"

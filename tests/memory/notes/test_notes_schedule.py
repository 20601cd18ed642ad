"""When notes are brought up to date: by the growth of the context, by calls, and by what the turns have paid for."""

from decimal import Decimal

import attrs

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


def test_the_first_update_comes_at_ten_thousand_tokens_whatever_was_called() -> None:
    assert not is_due(schedule(), 9_999, CHEAP)
    assert is_due(schedule(), 10_000, CHEAP)


def test_a_fork_counts_from_what_it_inherited() -> None:
    assert not is_due(schedule(since=150_000), 159_999, CHEAP)
    assert is_due(schedule(since=150_000), 160_000, CHEAP)


def test_later_ones_come_after_a_step_and_calls_or_a_pause() -> None:
    assert not is_due(begun(calls=3), 24_999, CHEAP)
    assert is_due(begun(calls=3), 25_000, CHEAP)
    assert not is_due(begun(calls=2), 90_000, CHEAP)
    assert is_due(begun(is_pausing=True), 25_000, CHEAP)


def test_calls_are_counted_from_when_an_update_begins() -> None:
    counted = begun(calls=3).after_start(25_000).after_turn(26_000, 2, CHEAP)
    assert (counted.calls, counted.is_pausing) == (2, False)
    assert not is_due(counted, 30_000, CHEAP)
    assert is_due(counted.after_turn(30_000, 1, CHEAP), 30_000, CHEAP)
    assert is_due(counted.after_turn(30_000, 0, CHEAP), 30_000, CHEAP)


def test_updates_cost_eight_per_cent_of_the_turns_at_most() -> None:
    paid = schedule().after_success(Decimal("7.5"))
    assert is_due(paid, 10_000, Decimal("0.5"))
    assert not is_due(paid, 10_000, Decimal("0.51"))
    assert is_due(paid.after_turn(10_000, 1, Decimal("0.2")), 10_000, Decimal("0.51"))


def test_over_a_long_run_the_share_is_kept_and_used() -> None:
    """Each turn adds 1,500 tokens and reads all of it; an update reads it too, and writes."""
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


def test_a_failure_doubles_the_wait_up_to_a_limit_and_a_success_ends_that() -> None:
    failing, waits = begun(), []
    for _ in range(MOST_DOUBLINGS + 2):
        failing = failing.after_failure(CHEAP)
        waits.append(failing.wait)
    assert waits == [10_000, 20_000, 40_000, 80_000, 160_000, 160_000, 160_000]
    assert failing.notes_usd == 7 * CHEAP
    assert failing.after_success(CHEAP).wait == 5_000


def test_a_first_update_that_failed_is_tried_again_after_two_steps() -> None:
    failed = schedule().after_start(10_000).after_failure(CHEAP).after_turn(19_999, 3, CHEAP)
    assert not is_due(failed, 19_999, CHEAP)
    assert is_due(failed, 20_000, CHEAP)


def test_a_context_that_has_shrunk_is_counted_from_what_it_holds_now() -> None:
    after = begun().after_shrink(12_000).after_turn(13_000, 3, CHEAP)
    assert not is_due(after, 16_999, CHEAP)
    assert is_due(after, 17_000, CHEAP)
    cleared = begun().after_turn(8_000, 3, CHEAP)
    assert cleared.since == 8_000
    assert is_due(cleared, 13_000, CHEAP)


FULL = UpdateThreshold(tokens=167_000, most=40_000)


def test_half_the_money_is_put_by_for_the_updates_before_the_context_is_full() -> None:
    """It is spent when the next turn may fill the context, and bring more than may stay beside what the notes know."""
    paid = begun(need=FULL, calls=3).after_success(Decimal("3.99"))
    assert paid.delay(90_000, CHEAP) is None
    paid = paid.after_success(CHEAP)
    assert [paid.is_close(tokens) for tokens in (146_999, 147_000)] == [False, True]
    assert paid.delay(146_999, CHEAP, unknown=40_000) == "money"
    assert paid.delay(147_000, CHEAP, unknown=20_000) == "money"
    assert paid.delay(147_000, CHEAP, unknown=20_001) is None
    assert paid.after_success(Decimal(4)).delay(147_000, CHEAP, unknown=40_000) == "money"


def test_what_is_new_counts_though_it_took_the_place_of_what_was_cleared() -> None:
    """The context holds as much as before; but after a failure more must come, lest it be tried at every turn."""
    flat = attrs.evolve(begun(need=FULL, calls=3), since=150_000)
    assert flat.delay(150_000, CHEAP, unknown=4_999) == "growth"
    assert flat.delay(150_000, CHEAP, unknown=5_000) is None
    assert flat.after_failure(CHEAP).delay(150_000, CHEAP, unknown=90_000) == "growth"


def test_without_a_need_nothing_is_put_by() -> None:
    assert not begun().is_close(10**9)
    assert begun(calls=3).after_success(Decimal("7.99")).delay(167_000, CHEAP) is None

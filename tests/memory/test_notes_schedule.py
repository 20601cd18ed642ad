"""When notes are brought up to date: by the growth of the context, by calls, and by what the turns have paid for."""

from decimal import Decimal

from coterie.memory.notes import NotesLimits, Schedule
from coterie.memory.notes.schedule import MOST_DOUBLINGS

RICH = Decimal(100)
CHEAP = Decimal("0.01")


def schedule(**facts: object) -> Schedule:
    return Schedule(limits=NotesLimits(), turns_usd=RICH, **facts)  # type: ignore[arg-type]  # by name


def begun(**facts: object) -> Schedule:
    return schedule(since=20_000, has_begun=True, **facts)


def test_the_first_update_comes_at_ten_thousand_tokens_whatever_was_called() -> None:
    assert not schedule().is_due(9_999, CHEAP)
    assert schedule().is_due(10_000, CHEAP)


def test_a_fork_counts_from_what_it_inherited() -> None:
    assert not schedule(since=150_000).is_due(159_999, CHEAP)
    assert schedule(since=150_000).is_due(160_000, CHEAP)


def test_later_ones_come_after_a_step_and_calls_or_a_pause() -> None:
    assert not begun(calls=3).is_due(24_999, CHEAP)
    assert begun(calls=3).is_due(25_000, CHEAP)
    assert not begun(calls=2).is_due(90_000, CHEAP)
    assert begun(is_pausing=True).is_due(25_000, CHEAP)


def test_calls_are_counted_from_when_an_update_begins() -> None:
    counted = begun(calls=3).begun(25_000).heard(26_000, 2, CHEAP)
    assert (counted.calls, counted.is_pausing) == (2, False)
    assert not counted.is_due(30_000, CHEAP)
    assert counted.heard(30_000, 1, CHEAP).is_due(30_000, CHEAP)
    assert counted.heard(30_000, 0, CHEAP).is_due(30_000, CHEAP)


def test_updates_cost_eight_per_cent_of_the_turns_at_most() -> None:
    paid = schedule().done(Decimal("7.5"))
    assert paid.is_due(10_000, Decimal("0.5"))
    assert not paid.is_due(10_000, Decimal("0.51"))
    assert paid.heard(10_000, 1, Decimal("0.2")).is_due(10_000, Decimal("0.51"))


def test_over_a_long_run_the_share_is_kept_and_used() -> None:
    """Each turn adds 1,500 tokens and reads all of it; an update reads it too, and writes."""
    now, tokens, updates = Schedule(limits=NotesLimits()), 3_000, 0
    for _ in range(3_000):
        tokens = tokens + 1_500 if tokens < 160_000 else 40_000
        turn = Decimal(tokens) * 3 / 10_000_000 + Decimal("0.01")
        now = now.heard(tokens, 1, turn)
        update = turn + Decimal("0.01")
        if now.is_due(tokens, update):
            now, updates = now.begun(tokens).done(update), updates + 1
    assert now.notes_usd <= now.turns_usd * 8 / 100
    assert now.notes_usd > now.turns_usd * 7 / 100
    assert updates > 80


def test_a_failure_doubles_the_wait_up_to_a_limit_and_a_success_ends_that() -> None:
    failing, waits = begun(), []
    for _ in range(MOST_DOUBLINGS + 2):
        failing = failing.failed(CHEAP)
        waits.append(failing.wait)
    assert waits == [10_000, 20_000, 40_000, 80_000, 160_000, 160_000, 160_000]
    assert failing.notes_usd == 7 * CHEAP
    assert failing.done(CHEAP).wait == 5_000


def test_a_first_update_that_failed_is_tried_again_after_two_steps() -> None:
    failed = schedule().begun(10_000).failed(CHEAP).heard(19_999, 3, CHEAP)
    assert not failed.is_due(19_999, CHEAP)
    assert failed.is_due(20_000, CHEAP)


def test_a_context_that_has_shrunk_is_counted_from_what_it_holds_now() -> None:
    after = begun().shrunk(12_000).heard(13_000, 3, CHEAP)
    assert not after.is_due(16_999, CHEAP)
    assert after.is_due(17_000, CHEAP)
    cleared = begun().heard(8_000, 3, CHEAP)
    assert cleared.since == 8_000
    assert cleared.is_due(13_000, CHEAP)

"""Places, priorities and the cool-down."""

import itertools

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from coterie.orchestrator.gateway.admission_queue import MAX_PRIORITY_WAIT
from tests.orchestrator.gateway.gateway_calls import intent, make_gate, open_single_caller


async def test_concurrent_calls_are_limited_and_slots_are_released() -> None:
    gate = make_gate(places=2)
    async with open_single_caller(gate) as (asker, calls):
        for name in "xyz":
            await calls.ask(asker, name, intent())
        assert calls.started == ["x", "y"]
        assert gate.activity() == (2, 1)
        await calls.end("x")
        assert calls.started == ["x", "y", "z"]


async def test_calls_start_by_priority_then_by_arrival() -> None:
    async with open_single_caller(make_gate(places=1)) as (asker, calls):
        await calls.ask(asker, "first", intent())
        purposes = ["summary", "recall", "notes", "unheard-of", "compaction", "turn", "turn"]
        for number, purpose in enumerate(purposes):
            await calls.ask(asker, f"{purpose} {number}", intent(purpose=purpose))
        for _ in purposes:
            await calls.end(calls.started[-1])
        expected = ["turn 5", "turn 6", "compaction 4", "notes 2", "recall 1", "unheard-of 3", "summary 0"]
        assert calls.started == ["first", *expected]


async def test_long_waiting_call_gets_the_highest_priority(autojump_clock: MockClock) -> None:
    async with open_single_caller(make_gate(places=1)) as (asker, calls):
        await calls.ask(asker, "turn 0", intent())
        await calls.ask(asker, "summary", intent(purpose="summary"))
        await calls.ask(asker, "turn 1", intent())
        await calls.end("turn 0")
        assert calls.started[-1] == "turn 1"
        await trio.sleep(MAX_PRIORITY_WAIT)
        await calls.ask(asker, "turn 2", intent())
        await calls.end("turn 1")
        assert calls.started[-1] == "summary"


async def test_rate_limit_pause_holds_all_calls_and_is_never_shortened(autojump_clock: MockClock) -> None:
    gate = make_gate()
    async with gate.open_client("a") as asker, gate.open_client("b") as other:
        began = trio.current_time()
        other.cool_down(10)
        other.cool_down(1)
        assert 10 <= gate.pause.opens_at - trio.current_time() <= 12.5
        async with asker.admit(intent()):
            assert 10 <= trio.current_time() - began <= 12.5
        assert gate.pause.closed_until <= trio.current_time()


async def test_extended_pause_delays_a_waiting_call(autojump_clock: MockClock) -> None:
    gate = make_gate()
    async with open_single_caller(gate) as (asker, calls):
        gate.cool_down(1)
        await calls.ask(asker, "call", intent())
        await trio.sleep(0.5)
        gate.cool_down(5)
        await trio.sleep(4.9)
        assert not calls.started
        await trio.sleep(2)
        assert calls.started == ["call"]


async def test_calls_start_one_by_one_after_a_pause(autojump_clock: MockClock) -> None:
    gate = make_gate()
    async with open_single_caller(gate) as (asker, calls):
        gate.cool_down(1)
        for number in range(10):
            await calls.ask(asker, str(number), intent())
        await trio.sleep(5)
        assert calls.started == [str(number) for number in range(10)]
        gaps = [later - earlier for earlier, later in itertools.pairwise(calls.times.values())]
        assert all(0.05 <= gap <= 0.15 for gap in gaps)
        assert len(set(gaps)) > 1, "the gaps are not all the same"
        at_once = trio.current_time()
        for name in ("after", "and after"):
            await calls.ask(asker, name, intent())
            assert calls.times[name] == at_once


async def test_queue_is_checked_after_the_first_waiter_is_cancelled(autojump_clock: MockClock) -> None:
    """The cancelled waiter had the deadline that wakes the queue."""
    gate = make_gate()
    async with open_single_caller(gate) as (asker, calls), trio.open_nursery() as nursery:

        async def give_up() -> None:
            with trio.move_on_after(0.5):
                async with asker.admit(intent()):
                    pytest.fail("the gate was closed")

        gate.cool_down(1)
        nursery.start_soon(give_up)
        await wait_all_tasks_blocked()
        await calls.ask(asker, "second", intent())
        await trio.sleep(2)
        assert calls.started == ["second"]


async def test_oversized_call_is_refused_during_a_pause() -> None:
    gate = make_gate(dollars=1)
    async with open_single_caller(gate) as (asker, calls):
        gate.cool_down(100)
        await calls.ask(asker, "dear", intent(dollars=2))
        assert "dear" in calls.failed

"""Order of calls: slots, priorities, the pause after a rate limit, and the wait for a prefix to be cached."""

import itertools

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from coterie.agents.loop.model.usage import Ttl, Usage
from coterie.clock import Clock
from coterie.orchestrator.gateway.admission import HOLD
from coterie.orchestrator.gateway.admission_queue import MAX_PRIORITY_WAIT
from coterie.orchestrator.gateway.cache_warmup import TRIMMED, CacheWarmup
from tests.orchestrator.gateway.gateway_calls import intent, make_gate, open_single_caller, warming


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


async def test_calls_with_identical_prefix_wait_for_the_first() -> None:
    async with open_single_caller(make_gate()) as (asker, calls):
        await calls.ask(asker, "first", warming(b"same"))
        await calls.ask(asker, "second", warming(b"same"))
        await calls.ask(asker, "fork", warming(b"other", b"same"))
        await calls.ask(asker, "stranger", warming(b"none"))
        assert calls.started == ["first", "stranger"]
        await calls.end("first", Usage())
        assert set(calls.started[2:]) == {"second", "fork"}, "a settled call has begun"


async def test_next_call_writes_the_prefix_when_the_first_fails() -> None:
    async with open_single_caller(make_gate()) as (asker, calls):
        for name in ("first", "second", "third"):
            await calls.ask(asker, name, warming(name.encode(), b"parent"))
        await calls.end("first")
        assert calls.started == ["first", "second"]
        calls.permits["second"].begin()
        await wait_all_tasks_blocked()
        assert calls.started == ["first", "second", "third"]


async def test_warmup_wait_has_a_limit(autojump_clock: MockClock) -> None:
    async with open_single_caller(make_gate(places=2)) as (asker, calls):
        began = trio.current_time()
        await calls.ask(asker, "first", warming(b"1", b"parent"))
        await calls.ask(asker, "other", warming(b"3"))
        await calls.ask(asker, "second", warming(b"2", b"parent"))
        await calls.end("other")
        await trio.sleep(HOLD - 1)
        assert "second" not in calls.started
        await trio.sleep(2)
        assert calls.times["second"] - began == HOLD


@pytest.mark.parametrize(("ttl", "life"), [("5m", 300), ("1h", 3600)])
async def test_prefix_stays_warm_for_its_lifetime_after_the_last_use(ttl: Ttl, life: float) -> None:
    clock = Clock()
    async with open_single_caller(make_gate(clock=clock)) as (asker, calls):
        await calls.ask(asker, "writes", warming(b"1", b"parent", ttl=ttl))
        calls.permits["writes"].begin()
        clock.advance(life - 10)
        await calls.ask(asker, "reads", warming(b"2", b"parent"))
        calls.permits["reads"].begin()
        clock.advance(life - 10)
        await calls.ask(asker, "reads again", warming(b"3", b"parent"))
        await calls.ask(asker, "and again", warming(b"4", b"parent"))
        assert calls.started[-1] == "and again", "a read makes an entry live for its whole life again"
        clock.advance(life + 10)
        await calls.ask(asker, "leads", warming(b"5", b"parent"))
        await calls.ask(asker, "held", warming(b"6", b"parent"))
        assert calls.started[-1] == "leads"


async def test_uncacheable_prompt_delays_no_call() -> None:
    async with open_single_caller(make_gate()) as (asker, calls):
        for name in ("first", "second"):
            await calls.ask(asker, name, intent(prompt_tokens=100, prefix=b"same"))
        assert calls.started == ["first", "second"]


def test_expired_prefixes_are_removed() -> None:
    clock = Clock()
    warmth = CacheWarmup(clock, HOLD)
    for number in range(2 * TRIMMED):
        warmth.begin(warmth.start(warming(b"%d" % number), 0.0))
        clock.advance(1)
    assert len(warmth._warm) <= TRIMMED  # noqa: SLF001 - what is kept cannot be seen from outside

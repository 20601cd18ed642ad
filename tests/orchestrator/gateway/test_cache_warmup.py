"""Of calls with one uncached prefix, the first writes it and the others read it."""

import pytest
import trio
from trio.testing import MockClock

from coterie.agents.loop.model.usage import Ttl, Usage
from coterie.clock import Clock
from coterie.orchestrator.gateway.admission import HOLD
from coterie.orchestrator.gateway.cache_warmup import TRIMMED, CacheWarmup
from tests.orchestrator.gateway.gateway_calls import intent, make_gate, open_single_caller, warming


async def test_calls_with_one_prefix_wait_for_the_first_reply() -> None:
    async with open_single_caller(make_gate()) as (asker, calls):
        for name in ("first", "second", "third"):
            await calls.ask(asker, name, warming(name.encode(), b"parent"))
        assert calls.started == ["first"]
        calls.permits["first"].begin()
        await trio.testing.wait_all_tasks_blocked()
        assert set(calls.started) == {"first", "second", "third"}


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
        await trio.testing.wait_all_tasks_blocked()
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


async def test_call_in_warmup_wait_uses_no_slot() -> None:
    async with open_single_caller(make_gate(places=2)) as (asker, calls):
        await calls.ask(asker, "first", warming(b"1", b"parent"))
        await calls.ask(asker, "held", warming(b"2", b"parent"))
        await calls.ask(asker, "other", warming(b"3"))
        assert calls.started == ["first", "other"]


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

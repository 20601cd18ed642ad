"""Admission of model calls: budgets, slots, priorities, pauses, the wait for a cached prefix, and closed clients."""

import itertools

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from coterie.agents.errors import BudgetSpent
from coterie.agents.loop.model.usage import Ttl, Usage
from coterie.clock import Clock
from coterie.orchestrator.gateway.admission import HOLD, MAX_PRIORITY_WAIT
from coterie.orchestrator.gateway.cache_warmup import TRIMMED, CacheWarmup
from tests.orchestrator.gateway.gateway_calls import intent, make_gate, open_calls, open_single_caller, used, warming


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


async def test_rate_limit_pause_holds_all_calls_and_can_only_be_extended(autojump_clock: MockClock) -> None:
    gate = make_gate()
    async with open_single_caller(gate) as (asker, calls), gate.open_client("b") as other:
        other.cool_down(1)
        await calls.ask(asker, "call", intent())
        await trio.sleep(0.5)
        other.cool_down(10)
        other.cool_down(1)
        assert 10 <= gate.pause.opens_at - trio.current_time() <= 12.5
        await trio.sleep(9.9)
        assert not calls.started
        await trio.sleep(2.7)
        assert calls.started == ["call"]
        assert gate.pause.closed_until <= trio.current_time()


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
        for name in ("short", "uncacheable"):
            await calls.ask(asker, name, intent(prompt_tokens=100, prefix=b"small"))
        assert calls.started == ["first", "stranger", "short", "uncacheable"]
        await calls.end("first", Usage())
        assert set(calls.started[4:]) == {"second", "fork"}, "a settled call has begun"


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


async def test_call_waits_for_reserved_budget_and_is_refused_when_it_can_no_longer_fit() -> None:
    gate = make_gate(dollars=2)
    async with open_single_caller(gate) as (asker, calls):
        for name, dollars in (("one", 1.0), ("two", 1.0), ("fits", 1.0), ("large", 1.5)):
            await calls.ask(asker, name, intent(dollars=dollars))
        await calls.end("one", used(0.5))
        assert calls.started == ["one", "two"]
        await calls.end("two", used(0.5))
        assert calls.started == ["one", "two", "fits"]
        assert gate.accounts.session.spent == 1
        error = calls.failed["large"]
        assert isinstance(error, BudgetSpent)
        assert (error.scope, error.name) == ("session", None)
        assert str(error).startswith("$1.0000 of $2 are spent, and the next call may cost up to $1.5000; ")
        assert [float(each) for each in (error.budget, error.spent, error.reserve)] == [2, 1, 1.5]


async def test_small_calls_do_not_pass_a_large_waiting_call() -> None:
    async with open_single_caller(make_gate(dollars=2)) as (asker, calls):
        await calls.ask(asker, "first", intent(dollars=1))
        await calls.ask(asker, "large", intent(dollars=1.5))
        await calls.ask(asker, "small", intent(dollars=0.5))
        assert calls.started == ["first"]
        await calls.end("first", used(0.25))
        assert calls.started == ["first", "large"]


async def test_closed_client_releases_slots_and_pays_for_sent_calls() -> None:
    gate = make_gate(dollars=2, places=2)
    async with gate.open_client("b") as other, open_calls() as calls:
        async with gate.open_client("a") as asker:
            await calls.ask(asker, "sent", intent(dollars=1))
            await calls.ask(asker, "told", intent(dollars=1))
            await calls.ask(asker, "waits", intent(dollars=1))
            await calls.ask(other, "other", intent(dollars=0.5))
            calls.permits["told"].settle(used(0.25))
            assert "other" not in calls.started
            async with gate.open_client("a", incarnation=2):
                pass
            assert gate.activity() == (2, 2), "the close of another incarnation ends no call"
        await wait_all_tasks_blocked()
        assert isinstance(calls.failed["waits"], trio.ClosedResourceError)
        assert calls.started == ["sent", "told", "other"]
        session = gate.accounts.session
        assert (float(session.spent), float(session.estimated)) == (1.25, 1)
        calls.permits["told"].begin()
        await calls.end("sent", used(0.5))
        assert session.spent == 1.25, "a closed permit is not charged again"
        with pytest.raises(trio.ClosedResourceError):
            async with asker.admit(intent()):
                pytest.fail("a closed asker was served")


async def test_permit_granted_during_cancellation_is_returned() -> None:
    """The waiter is cancelled, and admitted before it knows: the place is free again, and nothing is booked."""
    gate = make_gate(dollars=10, places=1)
    async with gate.open_client("a") as asker, trio.open_nursery() as nursery:

        async def wait() -> None:
            async with asker.admit(intent()):
                pytest.fail("cancelled before")

        async with asker.admit(intent()) as permit:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            permit.void()
            nursery.cancel_scope.cancel()
        assert gate.activity() == (1, 0)
    assert gate.activity() == (0, 0)
    assert gate.accounts.session.spent == gate.accounts.session.reserved == 0


def test_expired_prefixes_are_removed() -> None:
    clock = Clock()
    warmth = CacheWarmup(clock, HOLD)
    for number in range(2 * TRIMMED):
        warmth.begin(warmth.start(warming(b"%d" % number), 0.0))
        clock.advance(1)
    assert len(warmth._warm) <= TRIMMED  # noqa: SLF001 - what is kept cannot be seen from outside

from decimal import Decimal

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.catalog import load_models
from coterie.agents.loop.model.gateway_protocol import CONCURRENT_CALLS, LocalGateway
from coterie.agents.loop.model.usage import Usage

INTENT = CallIntent(
    agent="main", purpose="turn", model=load_models().get("opus"), prompt_tokens=1, max_tokens=1, prefix=b""
)


async def test_concurrent_calls_are_limited_and_slots_released() -> None:
    gate = LocalGateway()
    inside = 0
    leave = trio.Event()

    async def call() -> None:
        nonlocal inside
        async with gate.admit(INTENT):
            inside += 1
            await leave.wait()
            inside -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(CONCURRENT_CALLS + 5):
            nursery.start_soon(call)
        await wait_all_tasks_blocked()
        assert inside == CONCURRENT_CALLS
        leave.set()
    assert inside == 0


async def test_longest_cool_down_delays_all_calls(autojump_clock: MockClock) -> None:
    gate = LocalGateway()
    gate.cool_down(10)
    gate.cool_down(2)
    started = trio.current_time()
    async with gate.admit(INTENT):
        assert trio.current_time() - started == 10


async def test_extended_cool_down_is_waited_for(autojump_clock: MockClock) -> None:
    gate = LocalGateway()
    gate.cool_down(1)
    started = trio.current_time()

    async def lengthen() -> None:
        await trio.sleep(0.5)
        gate.cool_down(5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lengthen)
        async with gate.admit(INTENT):
            assert trio.current_time() - started == 5.5


async def test_cancelled_wait_holds_no_slot(autojump_clock: MockClock) -> None:
    gate = LocalGateway()
    for _ in range(CONCURRENT_CALLS + 1):
        gate.cool_down(100)
        with trio.move_on_after(1):
            async with gate.admit(INTENT):
                pytest.fail("the gate was closed")
    with trio.fail_after(200):
        async with gate.admit(INTENT):
            pass


async def test_usage_is_summed_exactly() -> None:
    gate = LocalGateway()
    async with gate.admit(INTENT) as permit:
        permit.begin()
        permit.settle(Usage(input=10, read=1))
    async with gate.admit(INTENT) as permit:
        permit.settle(Usage(output=1))
    assert gate.used == Usage(input=10, read=1, output=1)
    assert gate.spent == Decimal("0.0000602")

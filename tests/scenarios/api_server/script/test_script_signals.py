import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from coterie.scenarios.api_server.request.errors import ApiError
from coterie.scenarios.api_server.script.script_signals import ScriptSignals


async def wait_and_note(signals: ScriptSignals, names: list[str], log: list[str]) -> None:
    await signals.wait(names)
    log.append("+".join(names))


async def test_wait_after_the_signal_returns_immediately() -> None:
    signals = ScriptSignals()
    signals.raise_signal("a")
    with trio.fail_after(1), assert_checkpoints():
        await signals.wait(["a"])
    assert signals.raised == ["a"]


async def test_wait_before_the_signal_is_woken() -> None:
    signals, log = ScriptSignals(), list[str]()
    async with trio.open_nursery() as nursery:
        for name in ("a", "b", "a"):
            nursery.start_soon(wait_and_note, signals, [name], log)
        await wait_all_tasks_blocked()
        assert log == []
        assert signals.awaited == ["a", "b"]
        signals.raise_signal("a")
        await wait_all_tasks_blocked()
        assert log == ["a", "a"]
        signals.raise_signal("b")
    assert log == ["a", "a", "b"]
    assert (signals.raised, signals.awaited) == (["a", "b"], [])


@pytest.mark.parametrize("order", [["a", "b"], ["b", "a"]])
async def test_all_names_are_waited_for_in_any_order(order: list[str]) -> None:
    signals, log = ScriptSignals(), list[str]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_and_note, signals, ["a", "b"], log)
        await wait_all_tasks_blocked()
        signals.raise_signal(order[0])
        await wait_all_tasks_blocked()
        assert log == []
        assert signals.awaited == [order[1]]
        signals.raise_signal(order[1])
    assert log == ["a+b"]


async def test_no_names_are_all_raised() -> None:
    with trio.fail_after(1):
        await ScriptSignals().wait([])


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    signals = ScriptSignals(limit=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(signals.wait, ["a"])
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert signals.awaited == []
    signals.raise_signal("b")


async def test_the_number_of_names_is_bounded() -> None:
    signals = ScriptSignals()
    for number in range(1_000):
        signals.raise_signal(f"s{number}")
    signals.raise_signal("s0")
    with pytest.raises(ApiError, match="1,000 signals are raised or awaited already; clear some first"):
        signals.raise_signal("one more")
    with pytest.raises(ApiError, match="1,000 signals"):
        await signals.wait(["one more"])

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
    with trio.fail_after(1):
        await signals.wait([])
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


async def test_a_cleared_signal_wakes_and_must_be_raised_again() -> None:
    signals, log = ScriptSignals(), list[str]()
    signals.raise_signal("b")
    signals.clear("b")
    signals.clear("never raised")
    async with trio.open_nursery() as nursery:
        for name in ("a", "b"):
            nursery.start_soon(wait_and_note, signals, [name], log)
        await wait_all_tasks_blocked()
        assert log == []
        signals.raise_signal("a")
        signals.clear("a")
        await wait_all_tasks_blocked()
        assert (log, signals.raised) == (["a"], [])
        signals.raise_signal("b")


async def test_the_number_of_names_is_bounded_and_a_cancelled_wait_leaves_none() -> None:
    signals = ScriptSignals()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(signals.wait, ["cancelled"])
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert signals.awaited == []
    for number in range(1_000):
        signals.raise_signal(f"s{number}")
    signals.raise_signal("s0")
    with pytest.raises(ApiError, match="1,000 signals are raised or awaited already; clear some first"):
        signals.raise_signal("one more")
    with pytest.raises(ApiError, match="1,000 signals"):
        await signals.wait(["one more"])
    signals.clear("s0")
    signals.raise_signal("one more")
    assert len(signals.raised) == 1_000

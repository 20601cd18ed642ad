"""Wait of a client for the exit of a root."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from coterie.framing import read_frame, write_frame
from coterie.orchestrator.control import client
from coterie.orchestrator.control.client import RootExit
from coterie.orchestrator.control.requests import (
    ControlResponse,
    GetStopTime,
    StopTime,
    control_address,
    request_decoder,
)
from coterie.orchestrator.control.server import open_listener
from coterie.process_identity import ProcessIdentity

Answer = Callable[[], Awaitable[ControlResponse]]


@asynccontextmanager
async def open_late_root(answer: Answer) -> AsyncIterator[RootExit]:
    """A root that has not ended in time, and that gives *answer* when it is asked how long it needs."""
    this = ProcessIdentity.this()

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            assert request_decoder.decode(await read_frame(stream) or b"") == GetStopTime()
            await write_frame(stream, msgspec.json.encode(await answer()))

    with trio.fail_after(10):
        async with open_listener(control_address(this)) as door, trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, [door])
            yield RootExit(root=this, timeout=0.01)
            nursery.cancel_scope.cancel()


async def test_client_waits_for_a_late_root_as_long_as_it_needs() -> None:
    ended = trio.Event()

    async def answer() -> StopTime:
        ended.set()
        return StopTime(seconds=100.0)

    async with open_late_root(answer) as waiting:
        assert await waiting.wait(ended.wait)
        assert waiting.limit == pytest.approx(100.02)


@pytest.mark.parametrize("answers", [True, False], ids=["it stops no agent", "it does not answer"])
async def test_late_root_hangs(monkeypatch: pytest.MonkeyPatch, *, answers: bool) -> None:
    if not answers:
        monkeypatch.setattr(client, "STOP_TIME_TIMEOUT", 0.01)

    async def answer() -> StopTime:
        if not answers:
            await trio.sleep_forever()
        return StopTime(seconds=0.0)

    async with open_late_root(answer) as waiting:
        assert not await waiting.wait(trio.sleep_forever)
        assert waiting.limit == 0.01


async def test_late_root_without_a_control_socket_hangs() -> None:
    waiting = RootExit(root=ProcessIdentity(pid=1, began=0), timeout=0.01)
    assert not await waiting.wait(trio.sleep_forever)

"""Control socket of a root: early requests, requests of agents, and the wait for the exit of the root."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing

from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.framing import read_frame, write_frame
from coterie.orchestrator.control import client, requests
from coterie.orchestrator.control.client import RootExit, send_request
from coterie.orchestrator.control.server import open_control_server, open_listener
from coterie.orchestrator.session import root_lock
from coterie.orchestrator.session.root_lock import hold_root_lock, open_root_record
from coterie.process_identity import ProcessIdentity
from coterie.session_directory import SessionDirectory

PATIENCE = 10.0


async def count(request: requests.ControlRequest) -> requests.ControlAnswer:
    assert isinstance(request, requests.SendMail)
    return requests.DeliveryStatuses(
        fates=(requests.DeliveryStatus(recipient=request.to, refusal=f"{len(request.body)} characters"),)
    )


async def test_descendant_of_the_root_is_refused_for_any_message_length(session: SessionDirectory) -> None:
    with trio.fail_after(PATIENCE), open_root_record(session, Clock()) as root:
        async with open_listener(requests.control_address(root)) as door, open_control_server(door, count):
            with pytest.raises(ConfigInvalid, match=r"not an agent; agents write to each other with SendMessage$"):
                await send_request(root, requests.SendMail(to="main", body="x" * 900_000))
            with pytest.raises(ConfigInvalid, match=r"only the user can send this request, not an agent$"):
                await send_request(root, requests.StopAgent(name="main"))


async def test_request_waits_until_the_root_is_ready(session: SessionDirectory) -> None:
    with trio.fail_after(PATIENCE), open_root_record(session, Clock()) as root:
        async with open_listener(requests.control_address(root)) as door, trio.open_nursery() as nursery:
            answers: list[str] = []

            async def ask() -> None:
                try:
                    await send_request(root, requests.StopAgent(name="main"))
                except ConfigInvalid as exc:
                    answers.append(str(exc))

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            assert answers == []
            async with open_control_server(door, count):
                while not answers:  # noqa: ASYNC110 - the simplest reader there is
                    await trio.sleep(0.001)
    assert answers == ["agent: only the user can send this request, not an agent"]


def test_no_root_starts_while_the_root_lock_is_held(session: SessionDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_lock, "LOCK_TIMEOUT", 0.01)
    with hold_root_lock(session) as none:
        assert none is None
        with pytest.raises(ConfigInvalid, match="is being started or resumed"), open_root_record(session, Clock()):
            raise AssertionError("it has begun")
    with open_root_record(session, Clock()) as root:
        assert root.is_alive()
        with hold_root_lock(session) as found:
            assert found == root


Answer = Callable[[], Awaitable[requests.ControlResponse]]


@asynccontextmanager
async def open_late_root(answer: Answer) -> AsyncIterator[RootExit]:
    """A root that has not ended in time, and that gives *answer* when it is asked how long it needs."""
    this = ProcessIdentity.this()

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            assert requests.request_decoder.decode(await read_frame(stream) or b"") == requests.GetStopTime()
            await write_frame(stream, msgspec.json.encode(await answer()))

    with trio.fail_after(10):
        async with open_listener(requests.control_address(this)) as door, trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, [door])
            yield RootExit(root=this, timeout=0.01)
            nursery.cancel_scope.cancel()


async def test_client_waits_for_a_late_root_as_long_as_it_needs() -> None:
    ended = trio.Event()

    async def answer() -> requests.StopTime:
        ended.set()
        return requests.StopTime(seconds=100.0)

    async with open_late_root(answer) as waiting:
        assert await waiting.wait(ended.wait)
        assert waiting.limit == pytest.approx(100.02)


@pytest.mark.parametrize("answers", [True, False], ids=["it stops no agent", "it does not answer"])
async def test_late_root_hangs(monkeypatch: pytest.MonkeyPatch, *, answers: bool) -> None:
    if not answers:
        monkeypatch.setattr(client, "STOP_TIME_TIMEOUT", 0.01)

    async def answer() -> requests.StopTime:
        if not answers:
            await trio.sleep_forever()
        return requests.StopTime(seconds=0.0)

    async with open_late_root(answer) as waiting:
        assert not await waiting.wait(trio.sleep_forever)
        assert waiting.limit == 0.01
    without_socket = RootExit(root=ProcessIdentity(pid=1, began=0), timeout=0.01)
    assert not await without_socket.wait(trio.sleep_forever)

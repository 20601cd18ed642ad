"""Live session with a simulated root: events, end and refused requests."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import trio
import trio.testing

import coterie
from coterie.agents.root_link.channel import open_channel
from coterie.agents.root_link.messages import RunFailed
from coterie.agents.root_link.request_channel import RequestChannel
from coterie.clock import Clock
from coterie.orchestrator.api.live_session import SessionLiveness, count_existing
from coterie.orchestrator.control.launch_client import RootClient
from coterie.orchestrator.control.launch_protocol import SessionEnded, root_message_decoder
from coterie.orchestrator.control.requests import ControlAnswer, ControlRequest, control_address
from coterie.orchestrator.control.server import open_control_server, open_listener
from coterie.orchestrator.session.root_lock import open_root_record
from coterie.session_directory import SessionDirectory
from tests.orchestrator.session_writer import FINISHED, STARTED, open_writer

PATIENCE = 10.0


@pytest.fixture
async def host() -> AsyncIterator[RootClient]:
    near, far = trio.socket.socketpair()
    with far:
        async with open_channel(trio.SocketStream(near), root_message_decoder) as line:
            yield RootClient(RequestChannel(line))


def live(
    session: SessionDirectory, host: RootClient, life: SessionLiveness, past: Counter[str] | None = None
) -> coterie.LiveSession:
    return coterie.LiveSession(session, life, host, past or Counter())


async def test_resumed_session_skips_earlier_events(session: SessionDirectory, host: RootClient) -> None:
    with open_writer(session.directory) as writer:
        writer.write_event(STARTED)
        writer.write_text("user", "Go.")
        writer.write_event(FINISHED)
        past, life = count_existing(session.directory), SessionLiveness()
        writer.write_text("user", "Go on.")
    life.end(SessionEnded(is_done=True))
    opened = live(session, host, life, past)
    for _ in range(2):  # each reader gets every event
        async with opened.events() as events:
            assert [observed.kind async for observed in events] == ["message"]
    with pytest.raises(coterie.SessionFailed, match=r"ended without a result: its task is done\.$"):
        await opened.wait()


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (None, "it ended without a result: its process was killed."),
        (RunFailed(reason="the disk is full"), "the disk is full"),
        (SessionEnded(is_done=False, reason="It was stopped."), "it ended without a result: It was stopped."),
    ],
)
async def test_a_session_without_a_result_has_failed(
    session: SessionDirectory, host: RootClient, last: SessionEnded | RunFailed | None, reason: str
) -> None:
    life = SessionLiveness()
    life.end(last)
    with pytest.raises(coterie.SessionFailed) as raised:
        await live(session, host, life).wait()
    assert (raised.value.session, raised.value.reason) == (session.id, reason)


async def refuse(request: ControlRequest) -> ControlAnswer:
    """Not reached."""
    raise AssertionError(request)


async def test_program_of_an_agent_cannot_act_as_the_user(session: SessionDirectory, host: RootClient) -> None:
    opened = live(session, host, SessionLiveness())
    with trio.fail_after(PATIENCE), open_root_record(session, Clock()) as root:
        async with open_listener(control_address(root)) as door, open_control_server(door, refuse):
            asking: dict[str, Callable[[], Awaitable[object]]] = {
                "send": lambda: opened.send("main", "Go."),
                "spawn": lambda: opened.spawn("Go.", name="main"),
                "decide": lambda: opened.decide("main", approve=True),
                "stop": lambda: opened.stop("main"),
            }
            for asked, ask in asking.items():
                with pytest.raises(coterie.RequestRefused) as raised:
                    await ask()
                assert (raised.value.asked, raised.value.subject) == (asked, "main")
                assert raised.value.reason.startswith("only the user can send this request, not an agent")


async def test_invalid_requests_are_refused_before_sending(session: SessionDirectory, host: RootClient) -> None:
    opened = live(session, host, SessionLiveness())
    with pytest.raises(coterie.ConfigInvalid, match=r"^text: it is empty"):
        await opened.send("main", " ")
    with pytest.raises(coterie.ConfigInvalid, match=r"^prompt: it cannot be encoded as UTF-8"):
        await opened.spawn("\ud800")
    with pytest.raises(coterie.RequestRefused, match="one recipient; send to each"):
        await opened.send("*", "Go.")
    with pytest.raises(coterie.RequestRefused, match="the limit is 1,048,576 bytes"):
        await opened.send("main", "x" * 1_100_000)
    with pytest.raises(coterie.RequestRefused, match="a rejection needs feedback"):
        await opened.decide("plan-1", approve=False)
    with pytest.raises(coterie.SessionOver, match="it has ended") as raised:
        await opened.send("main", "Go.")
    assert raised.value.session == session.id

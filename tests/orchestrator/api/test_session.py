"""A session as its program sees it, with a root that a test plays: its events, its end, and what is refused."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

import coterie
from coterie.agents.control.line import open_line
from coterie.agents.control.words import Unable
from coterie.clock import Clock
from coterie.orchestrator.api.life import Life
from coterie.orchestrator.api.stream import count_past
from coterie.orchestrator.control_socket.reception import open_door, open_reception
from coterie.orchestrator.control_socket.requests import Answer, Request, control_address
from coterie.orchestrator.root_process.calling import Host
from coterie.orchestrator.root_process.words import Over, host_words
from coterie.orchestrator.root_record import open_root_record
from coterie.orchestrator.session import Session
from tests.orchestrator.written import FINISHED, STARTED, writing

PATIENCE = 10.0


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    return Session.create(tmp_path, Clock(), task="t", model="m")


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    near, far = trio.socket.socketpair()
    with far:
        async with open_line(trio.SocketStream(near), host_words) as line:
            yield Host(line)


def live(session: Session, host: Host, life: Life, past: Counter[str] | None = None) -> coterie.LiveSession:
    """What a program has of *session*."""
    return coterie.LiveSession(session, life, host, past or Counter())


async def test_events_come_until_the_session_is_over_and_none_is_lost(session: Session, host: Host) -> None:
    life, kinds = Life(), list[str]()

    async def read() -> None:
        async with live(session, host, life).events() as events:
            async for observed in events:
                kinds.append(observed.kind)

    with trio.fail_after(PATIENCE), writing(session.directory) as writer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            writer.tell(STARTED)
            while not kinds:  # noqa: ASYNC110 - what is waited for is what is tested
                await trio.sleep(0.001)
            writer.say("user", "Go.")
            writer.tell(FINISHED)
            life.end(Over(is_done=True))
    assert kinds == ["started", "message", "finished"]


async def test_what_happened_before_a_session_was_opened_again_is_not_told_again(session: Session, host: Host) -> None:
    with writing(session.directory) as writer:
        writer.tell(STARTED)
        writer.say("user", "Go.")
        writer.tell(FINISHED)
        past, life = count_past(session.directory), Life()
        writer.say("user", "Go on.")
    life.end(Over(is_done=True))
    opened = live(session, host, life, past)
    for _ in range(2):  # each reader is told everything
        async with opened.events() as events:
            assert [observed.kind async for observed in events] == ["message"]
    with pytest.raises(coterie.SessionFailed, match=r"has ended before its task: its task is done\.$"):
        await opened.wait()


async def test_waiting_gives_what_the_lead_said_in_this_run(session: Session, host: Host) -> None:
    with writing(session.directory) as writer:
        for event in (STARTED, FINISHED):
            writer.tell(event)
    life = Life()
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            results: list[coterie.Result] = []

            async def wait() -> None:
                results.append(await live(session, host, life).wait())

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            life.end(Over(is_done=True))
    [result] = results
    assert (result.reason, result.text, str(result.cost), result.is_done) == ("completed", "done", "0.1", True)


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (None, "it has ended before its task: its process was killed."),
        (Unable(reason="the disk is full"), "the disk is full"),
        (Over(is_done=False, reason="It was stopped."), "it has ended before its task: It was stopped."),
    ],
)
async def test_a_session_without_a_result_has_failed(
    session: Session, host: Host, last: Over | Unable | None, reason: str
) -> None:
    life = Life()
    life.end(last)
    with pytest.raises(coterie.SessionFailed) as raised:
        await live(session, host, life).wait()
    assert (raised.value.session, raised.value.reason) == (session.id, reason)


async def refuse(request: Request) -> Answer:
    """Nobody comes so far."""
    raise AssertionError(request)


async def test_an_agents_program_can_neither_send_nor_spawn_nor_decide_in_the_users_name(
    session: Session, host: Host
) -> None:
    opened = live(session, host, Life())
    with trio.fail_after(PATIENCE), open_root_record(session, Clock()) as root:
        async with open_door(control_address(root)) as door, open_reception(door, refuse):
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
                assert raised.value.reason.startswith("only the user can ask for this, and no agent")


async def test_what_cannot_be_asked_is_told_without_asking(session: Session, host: Host) -> None:
    opened = live(session, host, Life())
    with pytest.raises(coterie.ConfigInvalid, match=r"^text: it is empty"):
        await opened.send("main", " ")
    with pytest.raises(coterie.ConfigInvalid, match=r"^prompt: it cannot be written as UTF-8"):
        await opened.spawn("\ud800")
    with pytest.raises(coterie.RequestRefused, match="one recipient; send it to each"):
        await opened.send("*", "Go.")
    with pytest.raises(coterie.RequestRefused, match="too long: at most 1,048,576 bytes"):
        await opened.send("main", "x" * 1_100_000)
    with pytest.raises(coterie.RequestRefused, match="a no needs feedback"):
        await opened.decide("plan-1", approve=False)
    with pytest.raises(coterie.SessionOver, match="does not run any more") as raised:
        await opened.send("main", "Go.")
    assert raised.value.session == session.id

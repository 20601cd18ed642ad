"""Lock and control socket of a root, mail that it sends for its user, and the wait for its exit."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import msgspec
import pytest
import trio
import trio.testing

from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.framing import read_frame, write_frame
from coterie.mailbox.transports.session_mail import SessionKeys, SessionMail
from coterie.orchestrator.control import client, requests
from coterie.orchestrator.control.client import RootExit, send_request
from coterie.orchestrator.control.server import open_control_server, open_listener
from coterie.orchestrator.control.user_mail import handle_mail_request
from coterie.orchestrator.session import root_lock
from coterie.orchestrator.session.root_lock import (
    ROOT_RECORD,
    clear_stale_root,
    find_living_roots,
    find_root,
    has_dead_root,
    hold_root_lock,
    open_root_record,
)
from coterie.process_identity import ProcessIdentity
from coterie.session_directory import MAIN, SessionDirectory
from tests.orchestrator.mail_writer import MailWriter

PATIENCE = 10.0


async def never(request: requests.ControlRequest) -> requests.ControlAnswer:
    raise AssertionError(request)


async def test_descendant_of_the_root_is_refused_once_the_root_is_ready(session: SessionDirectory) -> None:
    mail = requests.SendMail(to="main", body="x" * 900_000)
    refusals: list[str] = []

    async def ask(request: requests.ControlRequest) -> None:
        with pytest.raises(ConfigInvalid) as refused:
            await send_request(root, request)
        refusals.append(str(refused.value))

    with trio.fail_after(PATIENCE), open_root_record(session, Clock()) as root:
        async with open_listener(requests.control_address(root)) as door, trio.open_nursery() as nursery:
            nursery.start_soon(ask, requests.StopAgent(name="main"))
            await trio.testing.wait_all_tasks_blocked()
            assert refusals == []
            async with open_control_server(door, never):
                await ask(mail)
                while len(refusals) < 2:  # noqa: ASYNC110 - the simplest reader there is
                    await trio.sleep(0.001)
    of_agent, of_mail = sorted(refusals)
    assert of_agent == "agent: only the user can send this request, not an agent"
    assert of_mail.endswith("not an agent; agents write to each other with SendMessage")


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


@pytest.fixture
def office(session: SessionDirectory) -> Iterator[SessionMail]:
    """The signed mail of a session, as its root opens it."""
    with SessionMail.open(session, Clock(), SessionKeys.new()) as office:
        yield office


async def read(office: SessionMail) -> list[str]:
    async with office.files.open_inbox("worker", 1) as inbox:
        return [delivery.envelope.body for delivery in inbox.take_nowait()]


async def test_sent_resent_and_released_mail_is_trusted(office: SessionMail) -> None:
    await office.roster.join("worker")
    writer = MailWriter(office.session)
    writer.add_dead_letter(writer.make_message(MAIN, "worker", "words of main"))
    held = writer.make_message("stranger", "worker", "words of a stranger", session="another")
    await office.held.hold(held)
    for request in (
        requests.SendMail(to="*", body="words of the user"),
        requests.ResendDeadLetter(number=office.dead_letters.history()[-1].number),
        requests.ReleaseHeldMessage(id=held.id),
    ):
        answer = await handle_mail_request(office, request)
        assert isinstance(answer, requests.DeliveryStatuses)
        assert [fate.recipient for fate in answer.fates if fate.receipt is not None] == ["worker"]
    assert await read(office) == ["words of the user", "words of main", "words of a stranger"]
    assert office.dead_letters.pending() == []


async def test_held_message_with_a_forged_session_is_not_released(office: SessionMail) -> None:
    await office.roster.join("worker")
    forged = MailWriter(office.session).make_message("spy", "worker", "words of main")
    await office.held.hold(forged)
    answer = await handle_mail_request(office, requests.ReleaseHeldMessage(id=forged.id))
    assert isinstance(answer, requests.NotStored)
    assert "came from outside" in answer.reason
    assert await read(office) == []
    assert [each.id for each in await office.held.messages()] == [forged.id]


def rewrite(session: SessionDirectory, **changes: object) -> None:
    path = session.directory / ROOT_RECORD
    facts: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode(facts | changes))


def test_session_has_one_root_that_is_found_only_within_its_block(session: SessionDirectory) -> None:
    assert find_root(session) is None
    with open_root_record(session, Clock()) as root:
        assert root.pid == os.getpid()
        with pytest.raises(ConfigInvalid, match=f"already running in process {root.pid}"):
            open_root_record(session, Clock()).__enter__()
        assert find_root(session) == root
        assert find_living_roots() == {session.id: root}
        assert not has_dead_root(session)
    assert find_root(session) is None
    assert not has_dead_root(session)


@pytest.mark.parametrize("changes", [{"began": 1}, {"boot": "another"}, {"v": 2}, {"pid": "x"}])
def test_process_with_a_reused_pid_is_not_the_root(session: SessionDirectory, changes: dict[str, object]) -> None:
    with open_root_record(session, Clock()):
        rewrite(session, **changes)
        assert find_root(session) is None
        assert has_dead_root(session)


def test_only_the_record_of_a_killed_root_is_cleared_or_replaced(session: SessionDirectory) -> None:
    with open_root_record(session, Clock()) as root:
        clear_stale_root(session)
        assert find_root(session) == root
        rewrite(session, began=1)
        left = (session.directory / ROOT_RECORD).read_bytes()
        clear_stale_root(session)
        assert not has_dead_root(session)
    (session.directory / ROOT_RECORD).write_bytes(left)
    with open_root_record(session, Clock()) as root:
        assert find_root(session) == root


def test_replaced_root_keeps_the_record_of_its_successor(session: SessionDirectory) -> None:
    with open_root_record(session, Clock()) as root:
        rewrite(session, started=root.started + 1)
    assert find_root(session) == attrs.evolve(root, started=root.started + 1)

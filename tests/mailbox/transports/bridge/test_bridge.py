"""The bridge over real sockets: identity of peers, policies, and exactly-once delivery."""

import contextlib
import errno
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from coterie.files import Operation, file_faults
from coterie.framing import FRAME_LIMIT, PeerInvalid, read_frame, write_frame
from coterie.mailbox.address import OtherSession, Socket, parse_address
from coterie.mailbox.contract import MailLimits
from coterie.mailbox.envelope import MessageId, MessageKind
from coterie.mailbox.errors import (
    BridgeRefused,
    MailboxFull,
    MessageTooLarge,
    NameInvalid,
    NotAllowed,
    UnknownRecipient,
)
from coterie.mailbox.transports.bridge.held_mail import NoHeldMessage
from coterie.mailbox.transports.bridge.listener import (
    REMEMBERED,
    AcceptPolicy,
    InboundRateLimiter,
    ReceivedRecord,
    open_received_ids,
)
from coterie.mailbox.transports.bridge.protocol import DeliveryReply, Hello
from coterie.mailbox.transports.bridge.socket_path import (
    BridgeUnusable,
    check_uid,
    make_directory,
    read_credentials,
    socket_path,
)
from coterie.mailbox.transports.bridge.transport import BridgeTransport
from tests.mailbox.transports.bridge.two_sessions import ACCEPT, HOME, TRUE_SENDER, Two

pytestmark = pytest.mark.usefixtures("runtime")


@asynccontextmanager
async def connect(path: Path, session: str = "away") -> AsyncIterator[trio.SocketStream]:
    """Open a raw connection after the handshake."""
    async with await trio.open_unix_socket(path) as stream:
        await write_frame(stream, Hello(session=session).to_bytes())
        assert (await answer_on(stream)).outcome == "welcome"
        yield stream


async def answer_on(stream: trio.SocketStream) -> DeliveryReply:
    with trio.fail_after(5):
        return DeliveryReply.from_bytes(await read_frame(stream) or b"")


async def test_socket_is_private_to_one_session_and_removed_at_the_end(two: Two, runtime: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(make_directory() / "home.sock"))
    async with two.open() as path:
        assert path == runtime / "coterie" / "home.sock"
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(BridgeUnusable, match="another process receives mail for session 'home'"):
            async with two.open():
                pytest.fail("two listen")
        await two.send("hello")
    assert two.bodies == ["hello"]
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("session", ["../x", "", "a/b", "a\0b", "x" * 300])
def test_invalid_session_id_has_no_socket(session: str) -> None:
    with pytest.raises(NameInvalid):
        socket_path(session)


def test_socket_path_depends_on_the_runtime_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert socket_path("s1") == Path(f"/tmp/coterie-{os.getuid()}/s1.sock")  # noqa: S108 - the documented place
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp/" + "x" * 100)  # noqa: S108 - never made
    with pytest.raises(BridgeUnusable, match="over 107; set XDG_RUNTIME_DIR"):
        socket_path("home")


def open_to_others(path: Path) -> None:
    path.mkdir()
    path.chmod(0o770)


def owned_by_another(path: Path) -> None:
    path.mkdir(mode=0o700)
    if os.getuid() != 0:
        pytest.skip("only root can change the owner of a directory; run the tests as root")
    os.chown(path, 12345, -1)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(open_to_others, "has the permissions 770", id="writable by others"),
        pytest.param(lambda path: path.symlink_to(path.parent.parent), "is a link or a file", id="link"),
        pytest.param(owned_by_another, "belongs to user id 12345", id="of another user"),
    ],
)
def test_unsafe_directory_of_sockets_is_refused(runtime: Path, make: Callable[[Path], None], reason: str) -> None:
    make(runtime / "coterie")
    with pytest.raises(BridgeUnusable, match=reason):
        make_directory()


async def test_peer_credentials_of_another_user_are_refused(two: Two) -> None:
    async with two.open() as path, await trio.open_unix_socket(path) as stream:
        credentials = read_credentials(stream)
    assert struct.unpack("iII", credentials) == (os.getpid(), os.getuid(), os.getgid())
    check_uid(credentials)
    with pytest.raises(PeerInvalid, match="the other process belongs to user 4242"):
        check_uid(struct.pack("iII", 1, 4242, os.getgid()))


async def test_message_to_any_address_gets_the_session_of_the_hello_and_kind_peer(two: Two) -> None:
    async with two.open() as path:
        for address in (parse_address("bridge:home"), parse_address(f"uds:{path}"), Socket(path)):
            assert isinstance(address, Socket | OtherSession)
            receipt = await two.sending().send(two.write(), address)
            assert (receipt.state, receipt.transport, receipt.recipient) == ("accepted", "bridge", "main")
    assert [(letter.sender, letter.mac) for letter in two.delivered] == [(TRUE_SENDER, None)] * 3


async def test_peer_with_the_name_of_this_session_or_another_version_is_refused(two: Two) -> None:
    liar = BridgeTransport("home", two.root / "liar", two.clock, two.dead.append)
    hellos = [
        (Hello(session="home"), "the sender has the id of this session"),
        (Hello(session="away", v=2), "the sender has protocol version 2, not 1"),
    ]
    async with two.open() as path:
        with pytest.raises(BridgeRefused, match="address its agents by name"):
            await liar.send(two.write(), HOME)
        for hello, reason in hellos:
            async with await trio.open_unix_socket(path) as stream:
                await write_frame(stream, hello.to_bytes())
                assert reason in (await answer_on(stream)).reason


@pytest.mark.parametrize("kind", ["shutdown_request", "permission_response", "task_assignment", "idle"])
async def test_only_text_passes_the_bridge(two: Two, kind: MessageKind) -> None:
    """A structured message is refused by our sender, and by the receiver if the sender does not check."""
    async with two.open() as path:
        with pytest.raises(NotAllowed, match="send plain text to other sessions"):
            await two.sending().send(two.write(kind=kind), HOME)
        async with connect(path) as stream:
            await write_frame(stream, two.write(kind=kind).to_bytes())
            assert (await answer_on(stream)).refusal == "NotAllowed"
    assert two.delivered == []


async def test_refusals_reach_the_sender(two: Two) -> None:
    two.error = UnknownRecipient("mian", ("main",), ("main", "bob"))
    async with two.open():
        with pytest.raises(UnknownRecipient, match="did you mean main") as caught:
            await two.send("hello")
    assert (caught.value.nearest, caught.value.known) == (("main",), ("main", "bob"))
    async with two.open(AcceptPolicy(policy="refuse")):
        with pytest.raises(BridgeRefused, match="bridge:home rejected the message: the session takes no mail"):
            await two.send("hello")


async def test_message_size_is_limited_to_one_frame(two: Two) -> None:
    empty = two.write("")
    room = FRAME_LIMIT - len(empty.to_bytes())
    async with two.open():
        await two.sending().send(attrs.evolve(empty, body="x" * room), HOME)
        with pytest.raises(MessageTooLarge):
            await two.sending().send(attrs.evolve(empty, body="x" * (room + 1)), HOME)
    assert len(two.delivered) == 1


@pytest.mark.parametrize(
    "raw",
    [b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\5nope!", b"\0\0\0\2{}"],
    ids=["http", "4 GB", "empty", "no JSON", "no envelope"],
)
async def test_malformed_frame_is_refused_and_closes_the_connection(two: Two, raw: bytes) -> None:
    async with two.open() as path:
        async with connect(path) as stream:
            await stream.send_all(raw)
            answer = await answer_on(stream)
            assert (answer.outcome, answer.reason != "") == ("refused", True)
            with pytest.raises((trio.BrokenResourceError, EOFError)):
                raise EOFError if await read_frame(stream) is None else AssertionError
        assert (await two.send("hello"))[0].state == "accepted"


@pytest.mark.parametrize("kind", [Hello, DeliveryReply])
@given(data=st.binary() | st.text().map(str.encode) | st.binary().map(b'{"session":"%s","v":1}'.__mod__))
def test_garbage_raises_only_peer_invalid(kind: type[Hello] | type[DeliveryReply], data: bytes) -> None:
    with contextlib.suppress(PeerInvalid):
        kind.from_bytes(data)


@pytest.mark.parametrize("begun", [b"", b"\0\0", b"\0\1\0\0half"])
async def test_silent_peer_gets_a_timeout_reply(two: Two, autojump_clock: MockClock, begun: bytes) -> None:
    async with two.open() as path, connect(path) as stream:
        if begun:
            await stream.send_all(begun)
        answer = DeliveryReply.from_bytes(await read_frame(stream) or b"")
        assert answer.reason == "the other session sent no complete message in 10 seconds; send it again"


async def test_connections_over_the_limit_wait(two: Two) -> None:
    terms = attrs.evolve(ACCEPT, connections=1)
    async with two.open(terms) as path, connect(path) as first, await trio.open_unix_socket(path) as second:
        await write_frame(second, Hello(session="away").to_bytes())
        await wait_all_tasks_blocked()
        with socket.socket(fileno=os.dup(second.socket.fileno())) as peeking, pytest.raises(BlockingIOError):
            peeking.recv(1, socket.MSG_PEEK)
        await first.aclose()
        assert (await answer_on(second)).outcome == "welcome"


async def test_message_waits_when_the_peer_never_replies(two: Two) -> None:
    make_directory()
    with trio.socket.socket(trio.socket.AF_UNIX) as mute:
        await mute.bind(str(socket_path("home")))
        mute.listen(1)
        receipt = await two.sending(patience=0.05).send(two.write(), HOME)
    assert receipt.state == "waiting"


async def test_socket_that_is_no_bridge_is_refused(two: Two) -> None:
    """The error names the program that listens, and no message waits for it."""
    path = make_directory().parent / "other.sock"
    with trio.socket.socket(trio.socket.AF_UNIX) as other:
        await other.bind(str(path))
        other.listen(1)
        async with trio.open_nursery() as nursery:

            async def greet() -> None:
                stream = trio.SocketStream((await other.accept())[0])
                async with stream:
                    await write_frame(stream, b'"welcome to something else"')

            nursery.start_soon(greet)
            with pytest.raises(BridgeRefused, match="is no session"):
                await two.sending().send(two.write(), Socket(path))


async def test_reply_from_another_session_is_refused(two: Two) -> None:
    async with two.open(session="impostor") as path:
        path.rename(path.with_name("home.sock"))
        with pytest.raises(BridgeRefused, match="session 'impostor' has this address"):
            await two.send("hello")


async def test_message_is_delivered_once_when_the_reply_was_lost(two: Two) -> None:
    letter = two.write()
    async with two.open() as path, connect(path) as stream:
        await write_frame(stream, letter.to_bytes())
        await answer_on(stream)
    two.delivered.clear()  # as if the transport had forgotten the id
    async with two.open():
        assert (await two.sending().send(letter, HOME)).state == "accepted"
    assert two.delivered == []


async def test_equal_messages_within_the_window_are_delivered_once(two: Two) -> None:
    first, again, later = two.write("ping"), two.write("ping"), two.write("ping")
    terms = attrs.evolve(ACCEPT, repeat_window=60)
    async with two.open(terms):
        receipt = await two.sending().send(first, HOME)
    async with two.open(terms):
        assert await two.sending().send(again, HOME) == receipt
        assert receipt.id == first.id
        await two.send("pong")
        await two.sending().send(attrs.evolve(again, id=MessageId("r1"), in_reply_to=MessageId("q1")), HOME)
        two.clock.advance(61)
        assert (await two.sending().send(later, HOME)).id == later.id
    assert two.bodies == ["ping", "pong", "ping", "ping"]


async def test_rate_limit_tells_the_sender_when_to_retry(two: Two) -> None:
    async with two.open(AcceptPolicy(policy="accept", per_minute=30, burst=3)):
        await two.send("0", "1", "2")
        with pytest.raises(BridgeRefused, match=r"'alice' may send 30 messages a minute; try again in [12]\.\d sec"):
            await two.send("4")
        two.clock.advance(2)
        await two.send("5")
    assert two.bodies == ["0", "1", "2", "5"]


def test_rates_are_per_sender_bounded_and_survive_a_clock_set_back() -> None:
    rates = InboundRateLimiter(60, 2)
    assert [rates.spend(("s", "a"), 100.0) for _ in range(3)] == [0, 0, 1]
    assert rates.spend(("s", "b"), 100.0) == 0
    assert rates.spend(("s", "a"), 50.0) == 1
    assert rates.spend(("s", "a"), 101.0) == 0
    for number in range(5000):
        rates.spend(("s", str(number)), float(number))
    assert len(rates._buckets) < 1100  # noqa: SLF001 - the memory is the promise


def test_received_ids_are_bounded_and_survive_a_torn_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.mailbox.transports.bridge.listener.REMEMBERED", 10)
    path = tmp_path / "held" / "taken.jsonl"
    with open_received_ids(path) as taken:
        for number in range(25):
            taken.add(ReceivedRecord(id=MessageId(f"m{number}"), words=str(number), outcome="accepted", stored=1.0))
    path.write_bytes(path.read_bytes()[:-5])
    with open_received_ids(path) as taken:
        assert sorted(taken._by_id) == sorted(f"m{number}" for number in range(14, 24))  # noqa: SLF001
    assert path.read_bytes().count(b'"id"') == 10
    assert REMEMBERED > 10


class ReceivedIdsFail:
    """Disk on which only writes of received ids fail."""

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """As `FaultHook.before`."""
        if (operation, path.name) == ("write", "taken.jsonl"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return size


@pytest.mark.parametrize(("terms", "state"), [(ACCEPT, "accepted"), (AcceptPolicy(), "held")])
async def test_message_is_stored_once_when_its_id_was_not(two: Two, terms: AcceptPolicy, state: str) -> None:
    letter = two.write()
    async with two.open(terms):
        with file_faults(ReceivedIdsFail()), pytest.raises(BridgeRefused, match="No space left"):
            await two.sending().send(letter, HOME)
        assert (await two.sending().send(letter, HOME)).state == state
    stored = [*two.delivered, *await two.held().messages()]
    assert stored == [attrs.evolve(letter, mac=None, sender=TRUE_SENDER)]


async def test_held_mail_is_released_or_dropped_once(two: Two) -> None:
    first, second = two.write("first"), two.write("second")
    async with two.open(AcceptPolicy(held=MailLimits(messages=2))):
        for letter in (first, second, first):
            assert (await two.sending().send(letter, HOME)).state == "held"
        with pytest.raises(MailboxFull, match="2 of 2 messages"):
            await two.send("third")
        assert two.delivered == []
        two.error = MailboxFull("main", 3, 3, "messages")
        with pytest.raises(MailboxFull):
            await two.held().release(second.id, two.deliver)
        assert [letter.body for letter in await two.held().messages()] == ["first", "second"]
        two.error = None
        assert (await two.held().release(second.id, two.deliver)).id == second.id
        await two.held().drop(first.id)
        for letter in (first, second):
            assert (await two.sending().send(letter, HOME)).state == "held"
    assert [(letter.body, letter.sender.kind) for letter in two.delivered] == [("second", "peer")]
    assert [(letter.reason, letter.detail) for letter in two.dead] == [("refused", "dropped by the user")]
    assert await two.held().messages() == []
    with pytest.raises(NoHeldMessage):
        await two.held().drop(second.id)


async def test_damaged_held_message_is_dead_lettered(two: Two) -> None:
    async with two.open(AcceptPolicy()):
        await two.send("one", "two")
    damaged = min((two.root / "home/held").glob("*.json"))
    damaged.write_bytes(damaged.read_bytes().replace(b"one", b"0ne"))
    assert [letter.body for letter in await two.held().messages()] == ["two"]
    assert [letter.reason for letter in two.dead] == ["corrupt"]

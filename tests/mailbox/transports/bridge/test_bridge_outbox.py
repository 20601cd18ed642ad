"""Outbox: listing, dropping, and automatic forwarding of mail for other sessions."""

import errno
import math
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coterie.files import file_faults
from coterie.mailbox.address import Socket
from coterie.mailbox.contract import DeadLetter, MailLimits
from coterie.mailbox.errors import MailboxBusy, MailboxFailed, MailboxFull, SendRefused, UnknownRecipient
from coterie.mailbox.transports.bridge.listener import AcceptPolicy
from coterie.mailbox.transports.bridge.outbox import NotInOutbox
from coterie.mailbox.transports.bridge.peer import Peer
from coterie.mailbox.transports.bridge.socket_path import hold_lock_file
from coterie.mailbox.transports.bridge.transport import BridgeTransport, open_forwarder
from tests.mailbox.transports.bridge.two_sessions import HOME, Two
from tests.seeded_faults import SeededFaults

PATIENCE = 5.0
"""Seconds after which a test fails instead of waiting on."""

pytestmark = pytest.mark.usefixtures("runtime")


def refuse(failure: MailboxFailed) -> None:
    """Fail the test if forwarding reports a failure."""
    raise failure


async def test_outbox_lists_mail_by_session_and_leaves_damaged_mail(two: Two, runtime: Path) -> None:
    before = two.clock.now()
    await two.send("one", "two")
    await two.send("three", to=Socket(runtime / "elsewhere.sock"))
    home, elsewhere = await two.sending().outgoing.queues()
    assert (home.address, home.is_listening, home.backlog.messages) == ("bridge:home", False, 2)
    assert home.backlog.oldest is not None
    assert before <= home.backlog.oldest <= two.clock.now()
    assert home.backlog.bytes > 2 * elsewhere.backlog.bytes - 100
    assert (elsewhere.address, elsewhere.backlog.messages) == (f"uds:{runtime}/elsewhere.sock", 1)
    found = await two.sending().outgoing.messages()
    assert [(address, letter.body) for address, letter in found[:2]] == [("bridge:home", "one"), ("bridge:home", "two")]
    first = min((two.root / "away" / "outgoing" / "home").glob("*.json"))
    first.write_bytes(b"garbage")
    async with two.open():
        home, elsewhere = await two.sending().outgoing.queues()
    assert (home.is_listening, elsewhere.is_listening, home.backlog.messages) == (True, False, 2)
    assert home.backlog.oldest is not None, "that of the other one"
    assert [letter.body for _, letter in await two.sending().outgoing.messages()] == ["two", "three"]
    assert (first.exists(), two.dead) == (True, [])


async def test_dropped_message_is_dead_lettered_and_others_arrive(two: Two) -> None:
    id_ = (await two.send("one", "two"))[1].id
    with hold_lock_file(two.root / "away" / "outgoing" / "home" / "claim"), pytest.raises(MailboxBusy):
        await two.sending().outgoing.drop(id_)
    assert two.dead == [], "it is being forwarded"
    await two.sending().outgoing.drop(id_)
    with pytest.raises(NotInOutbox, match="no message in the outbox"):
        await two.sending().outgoing.drop(id_)
    async with two.open():
        await two.sending().forward()
    assert [(letter.reason, letter.mailbox, letter.envelope and letter.envelope.body) for letter in two.dead] == [
        ("refused", "bridge:home", "two")
    ]
    assert two.bodies == ["one"]


async def test_mail_for_a_session_that_is_down_arrives_later_in_order(two: Two) -> None:
    assert {receipt.state for receipt in await two.send(*"01234")} == {"waiting"}
    async with two.open():
        assert (await two.send("5"))[0].state == "waiting", "it goes behind what waits"
        assert await two.sending().forward() == 6
        assert (await two.send("6"))[0].state == "accepted"
    assert two.bodies == list("0123456")


async def test_mail_in_the_outbox_expires(two: Two) -> None:
    now = two.clock.now()
    await two.sending().send(two.write("short", expires=now + 60), HOME)
    await two.send("long")
    sending = two.sending()
    two.clock.advance(61)
    await sending.forward()
    assert [(letter.reason, letter.mailbox) for letter in two.dead] == [("expired", "bridge:home")]
    two.clock.advance(7 * 24 * 3600)
    await sending.forward()
    assert [letter.envelope.body for letter in two.dead if letter.envelope] == ["short", "long"]


@pytest.mark.parametrize("error", [MailboxFull("main", 1, 1, "messages"), MailboxFailed("main", "disk full")])
async def test_message_stays_in_the_outbox_on_a_temporary_error(two: Two, error: SendRefused | MailboxFailed) -> None:
    await two.send("1")
    two.error = error
    async with two.open():
        assert await two.sending().forward() == 0
        two.error = None
        assert await two.sending().forward() == 1
    assert (two.bodies, two.dead) == (["1"], [])


async def test_outbox_is_forwarded_at_the_rate_limit(two: Two) -> None:
    await two.send(*"01234")
    async with two.open(AcceptPolicy(policy="accept", per_minute=60, burst=2)):
        assert await two.sending().forward() == 2
        two.clock.advance(60)
        assert await two.sending().forward() == 2
        two.clock.advance(60)
        assert await two.sending().forward() == 1
    assert (two.bodies, two.dead) == (list("01234"), [])


async def test_refused_mail_in_the_outbox_is_dead_lettered_once(two: Two) -> None:
    """Only one process forwards a queue: a double delivery would be dropped, but not a double refusal."""
    await two.send(*map(str, range(20)))
    two.error = UnknownRecipient("main", (), ())
    async with two.open():
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(two.sending().forward)
        two.error = None
        await two.send("later")
    assert [(letter.reason, letter.envelope and letter.envelope.body) for letter in two.dead] == [
        ("refused", str(number)) for number in range(20)
    ]
    assert two.bodies == ["later"]


async def test_outbox_refuses_mail_when_it_or_the_disk_is_full(two: Two) -> None:
    with file_faults(SeededFaults(1, full=1.0)), pytest.raises(MailboxFailed, match="No space left"):
        await two.send("hello")
    sending = two.sending(limits=MailLimits(messages=2))
    await sending.send(two.write("1"), HOME)
    await sending.send(two.write("2"), HOME)
    with pytest.raises(MailboxFull, match="the mailbox of 'bridge:home' is full: 2 of 2 messages"):
        await sending.send(two.write("3"), HOME)
    async with two.open():
        assert await two.sending().forward() == 2
    assert two.bodies == ["1", "2"]


async def test_concurrent_sends_keep_their_call_order(two: Two) -> None:
    sending = two.sending()
    async with two.open(), trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(sending.send, two.write(str(number)), HOME)
            await wait_all_tasks_blocked()
    assert two.bodies == [str(number) for number in range(20)]


@attrs.define(eq=False)
class Watched(BridgeTransport):
    """Transport that signals each forward."""

    has_looked: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def forward(self) -> int:
        """As `BridgeTransport.forward`."""
        taken = await BridgeTransport.forward(self)
        self.has_looked.set()
        return taken


async def test_forwarder_wakes_when_a_session_starts_to_listen(two: Two) -> None:
    await two.send("hello")
    sending = Watched("away", two.root / "away", two.clock, two.dead.append)
    with trio.fail_after(PATIENCE):
        async with open_forwarder(sending, refuse, every=math.inf):
            await sending.has_looked.wait()
            async with two.open():
                await two.has_delivered.wait()
    assert two.bodies == ["hello"]


async def test_forwarder_wakes_when_another_process_adds_a_message(two: Two) -> None:
    """The first message for a session, and one added when its directory exists."""
    with trio.fail_after(PATIENCE):
        async with open_forwarder(two.sending(), refuse, every=math.inf), two.open():
            for body in ("one", "two", "three"):
                two.has_delivered = trio.Event()
                spool = two.sending().outgoing.spool_of(Peer.at(HOME))
                await trio.to_thread.run_sync(spool.put, two.write(body))
                await two.has_delivered.wait()
    assert two.bodies == ["one", "two", "three"]


async def test_forwarder_polls_for_sockets_in_other_directories(two: Two, runtime: Path) -> None:
    await two.send("hello", to=Socket(runtime / "elsewhere.sock"))
    with trio.fail_after(PATIENCE):
        async with open_forwarder(two.sending(), refuse, every=0.01), two.open() as path:
            (runtime / "elsewhere.sock").symlink_to(path)
            await two.has_delivered.wait()
    assert two.bodies == ["hello"]


@attrs.define(eq=False)
class FullDisk:
    """Store of dead letters that is full for a number of calls."""

    refusals: int
    has_room: trio.Event = attrs.field(factory=trio.Event)
    buried: list[DeadLetter] = attrs.field(factory=list)
    _token: trio.lowlevel.TrioToken = attrs.field(factory=trio.lowlevel.current_trio_token)

    def bury(self, letter: DeadLetter) -> None:
        """As `StoreDeadLetter`."""
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        self.buried.append(letter)
        self._token.run_sync_soon(self.has_room.set)


async def test_disk_error_is_reported_once_and_forwarding_continues(two: Two) -> None:
    disk, told = FullDisk(refusals=3), list[str]()
    await two.send("too late")
    two.clock.advance(8 * 24 * 3600)
    sending = attrs.evolve(two.sending(), store_dead_letter=disk.bury)
    with trio.fail_after(PATIENCE):
        async with open_forwarder(sending, lambda failure: told.append(str(failure)), every=0.01):
            await disk.has_room.wait()
            await two.send("hello")
            async with two.open():
                await two.has_delivered.wait()
    assert told == ["the mailbox of 'bridge:home': [Errno 28] No space left on device"]
    assert [letter.reason for letter in disk.buried] == ["expired"]
    assert two.bodies == ["hello"]

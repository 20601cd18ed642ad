"""Outbox: listing, dropping, and automatic forwarding of mail for other sessions."""

import errno
import math
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import attrs
import pytest
import trio

from coterie.clock import Clock
from coterie.mailbox.address import OtherSession, Socket
from coterie.mailbox.contract import DeadLetter, Receipt
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.errors import MailboxBusy, MailboxFailed
from coterie.mailbox.transports.bridge.listener import AcceptPolicy, open_bridge
from coterie.mailbox.transports.bridge.outbox import NotInOutbox
from coterie.mailbox.transports.bridge.peer import Peer
from coterie.mailbox.transports.bridge.socket_path import hold_lock_file
from coterie.mailbox.transports.bridge.transport import BridgeTransport, open_forwarder
from tests.mailbox.file_mail import envelope

HOME = OtherSession("home")
PATIENCE = 5.0
"""Seconds after which a test fails instead of waiting on."""

pytestmark = pytest.mark.usefixtures("runtime")


@attrs.define(eq=False)
class Away:
    """Session `away`, whose mail waits until session `home` listens."""

    root: Path
    clock: Clock = attrs.field(factory=Clock)
    dead: list[DeadLetter] = attrs.field(factory=list)
    arrived: list[str] = attrs.field(factory=list)
    has_arrived: trio.Event = attrs.field(factory=trio.Event)

    def sending(self) -> BridgeTransport:
        """Return a bridge transport, as a new process of `away` would open it."""
        return BridgeTransport("away", self.root / "away", self.clock, self.dead.append)

    def home(self) -> AbstractAsyncContextManager[Path]:
        """Start the listener of `home`."""
        terms = AcceptPolicy(policy="accept", repeat_window=0)
        return open_bridge("home", self.root / "home", self._take, clock=self.clock, bury=self.dead.append, terms=terms)

    def write(self, body: str) -> Envelope:
        """Build a message with the current time."""
        return attrs.evolve(envelope(1, body), created=self.clock.now())

    async def wait(self, body: str, address: OtherSession | Socket = HOME) -> MessageId:
        """Send a message that must wait, and return its id."""
        receipt = await self.sending().send(self.write(body), address)
        assert receipt.state == "waiting"
        return receipt.id

    async def _take(self, letter: Envelope) -> Receipt:
        self.arrived.append(letter.body)
        self.has_arrived.set()
        return Receipt(id=letter.id, recipient="ada", transport="queue", stored=0.0)


@pytest.fixture
def away(tmp_path: Path) -> Away:
    return Away(tmp_path)


def refuse(failure: MailboxFailed) -> None:
    """Fail the test if forwarding reports a failure."""
    raise failure


async def test_outbox_counts_mail_by_session(away: Away, runtime: Path) -> None:
    before = away.clock.now()
    for body in ("one", "two"):
        await away.wait(body)
    await away.wait("three", Socket(runtime / "elsewhere.sock"))
    home, elsewhere = await away.sending().outgoing.queues()
    assert (home.address, home.is_listening, home.backlog.messages) == ("bridge:home", False, 2)
    assert home.backlog.oldest is not None
    assert before <= home.backlog.oldest <= away.clock.now()
    assert home.backlog.bytes > 2 * elsewhere.backlog.bytes - 100
    assert (elsewhere.address, elsewhere.backlog.messages) == (f"uds:{runtime}/elsewhere.sock", 1)
    found = await away.sending().outgoing.messages()
    assert [(address, letter.body) for address, letter in found[:2]] == [("bridge:home", "one"), ("bridge:home", "two")]


async def test_outbox_shows_a_listening_session(away: Away) -> None:
    await away.wait("one")
    async with away.home():
        [queue] = await away.sending().outgoing.queues()
    assert queue.is_listening
    [queue] = await away.sending().outgoing.queues()
    assert not queue.is_listening


async def test_listing_leaves_a_damaged_message_in_the_outbox(away: Away) -> None:
    await away.wait("one")
    await away.wait("two")
    first = min((away.root / "away" / "outgoing" / "home").glob("*.json"))
    first.write_bytes(b"garbage")
    [queue] = await away.sending().outgoing.queues()
    assert queue.backlog.messages == 2
    assert queue.backlog.oldest is not None, "that of the other one"
    assert [letter.body for _, letter in await away.sending().outgoing.messages()] == ["two"]
    assert (first.exists(), away.dead) == (True, [])


async def test_dropped_message_is_dead_lettered_and_others_arrive(away: Away) -> None:
    await away.wait("one")
    id_ = await away.wait("two")
    await away.sending().outgoing.drop(id_)
    with pytest.raises(NotInOutbox, match="no message in the outbox"):
        await away.sending().outgoing.drop(id_)
    async with away.home():
        await away.sending().forward()
    [letter] = away.dead
    assert (letter.reason, letter.mailbox, letter.envelope and letter.envelope.body) == (
        "refused",
        "bridge:home",
        "two",
    )
    assert away.arrived == ["one"]


async def test_message_being_forwarded_cannot_be_dropped(away: Away) -> None:
    id_ = await away.wait("one")
    with hold_lock_file(away.root / "away" / "outgoing" / "home" / "claim"), pytest.raises(MailboxBusy):
        await away.sending().outgoing.drop(id_)
    assert away.dead == []
    await away.sending().outgoing.drop(id_)


@attrs.define(eq=False)
class Watched(BridgeTransport):
    """Transport that signals each forward."""

    has_looked: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def forward(self) -> int:
        """As `BridgeTransport.forward`."""
        taken = await BridgeTransport.forward(self)
        self.has_looked.set()
        return taken


async def test_forwarder_wakes_when_a_session_starts_to_listen(away: Away) -> None:
    await away.wait("hello")
    sending = Watched("away", away.root / "away", away.clock, away.dead.append)
    with trio.fail_after(PATIENCE):
        async with open_forwarder(sending, refuse, every=math.inf):
            await sending.has_looked.wait()
            async with away.home():
                await away.has_arrived.wait()
    assert away.arrived == ["hello"]


async def test_forwarder_wakes_when_another_process_adds_a_message(away: Away) -> None:
    """The first message for a session, and one added when its directory exists."""
    with trio.fail_after(PATIENCE):
        async with open_forwarder(away.sending(), refuse, every=math.inf), away.home():
            for body in ("one", "two", "three"):
                away.has_arrived = trio.Event()
                spool = away.sending().outgoing.spool_of(Peer.at(HOME))
                await trio.to_thread.run_sync(spool.put, away.write(body))
                await away.has_arrived.wait()
    assert away.arrived == ["one", "two", "three"]


async def test_forwarder_polls_for_sockets_in_other_directories(away: Away, runtime: Path) -> None:
    await away.wait("hello", Socket(runtime / "elsewhere.sock"))
    with trio.fail_after(PATIENCE):
        async with open_forwarder(away.sending(), refuse, every=0.01), away.home() as path:
            (runtime / "elsewhere.sock").symlink_to(path)
            await away.has_arrived.wait()
    assert away.arrived == ["hello"]


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


async def test_disk_error_is_reported_once_and_forwarding_continues(away: Away) -> None:
    disk, told = FullDisk(refusals=3), list[str]()
    await away.wait("too late")
    away.clock.advance(8 * 24 * 3600)
    sending = attrs.evolve(away.sending(), store_dead_letter=disk.bury)
    with trio.fail_after(PATIENCE):
        async with open_forwarder(sending, lambda failure: told.append(str(failure)), every=0.01):
            await disk.has_room.wait()
            await away.wait("hello")
            async with away.home():
                await away.has_arrived.wait()
    assert told == ["the mailbox of 'bridge:home': [Errno 28] No space left on device"]
    assert [letter.reason for letter in disk.buried] == ["expired"]
    assert away.arrived == ["hello"]

"""What a scenario does to transports below their contract, they make up for."""

import time
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from coterie.clock import Clock
from coterie.mailbox.address import Socket
from coterie.mailbox.contract import Inbox, Receipt
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.fault_points import MailFault, MailRoute, mail_faults
from coterie.mailbox.transports.bridge.forwarder import open_forwarder
from coterie.mailbox.transports.bridge.listener import open_bridge
from coterie.mailbox.transports.bridge.transport import BridgeTransport
from coterie.mailbox.transports.file.transport import FileTransport
from coterie.mailbox.transports.in_process.transport import QueueTransport
from tests.mailbox.file_mail import DeadLetterList, Names, envelope
from tests.mailbox.transports.bridge.bridged_transport import OPEN

TRANSPORTS = ["queue", "file"]


@attrs.define(eq=False)
class Faults:
    """One deed on one way, as often as *times* says."""

    deed: MailFault
    way: MailRoute
    times: int = 1
    seconds: float = 0.0
    struck: int = 0

    def trigger(self, deed: MailFault, way: MailRoute, recipient: str) -> float | None:
        """As `MailFaults.trigger`."""
        if (deed, way) != (self.deed, self.way) or self.struck == self.times:
            return None
        assert recipient == "ada"
        self.struck += 1
        return self.seconds


def transport_of(way: str, directory: Path) -> QueueTransport | FileTransport:
    """A transport whose mail is for ada and bob."""
    if way == "queue":
        return QueueTransport(Names(), None, Clock(), DeadLetterList().add)
    return FileTransport(directory, Names(), None, Clock(), DeadLetterList().add)


async def read(inbox: Inbox, count: int) -> list[str]:
    """What the first *count* messages say, each acknowledged when it was taken."""
    bodies: list[str] = []
    while len(bodies) < count:
        await inbox.wait()
        deliveries = inbox.take_nowait()
        bodies += [delivery.envelope.body for delivery in deliveries]
        await inbox.acknowledge([delivery.envelope.id for delivery in deliveries])
    return bodies


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_a_lost_attempt_is_made_again(way: MailRoute, tmp_path: Path) -> None:
    transport, faults = transport_of(way, tmp_path), Faults("drop", way)
    with trio.fail_after(10), mail_faults(faults):
        async with transport.open_inbox("ada", 1) as inbox:
            await transport.send(envelope(1, "one"))
            assert inbox.take_nowait() == []
            await transport.send(envelope(2, "two"))
            assert await read(inbox, 2) == ["one", "two"]
    assert faults.struck == 1


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_what_comes_twice_is_delivered_once(way: MailRoute, tmp_path: Path) -> None:
    transport, faults = transport_of(way, tmp_path), Faults("duplicate", way, times=3)
    with trio.fail_after(10), mail_faults(faults):
        async with transport.open_inbox("ada", 1) as inbox:
            for number in (1, 2, 3):
                await transport.send(envelope(number, str(number)))
            assert await read(inbox, 3) == ["1", "2", "3"]
            assert inbox.take_nowait() == []
    async with transport.open_inbox("ada", 2) as inbox:
        assert inbox.take_nowait() == []
    assert faults.struck == 3


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_what_is_late_comes_all_the_same_and_nothing_overtakes_it(way: MailRoute, tmp_path: Path) -> None:
    transport, faults = transport_of(way, tmp_path), Faults("delay", way, seconds=0.05)
    with trio.fail_after(10), mail_faults(faults):
        async with transport.open_inbox("ada", 1) as inbox:
            began = time.monotonic()
            await transport.send(envelope(1, "one"))
            await transport.send(envelope(2, "two"))
            assert inbox.take_nowait() == []
            assert await read(inbox, 2) == ["one", "two"]
            assert time.monotonic() - began >= 0.05
    assert faults.struck == 1


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_mail_of_two_senders_changes_places_and_that_of_one_never(way: MailRoute, tmp_path: Path) -> None:
    transport, faults = transport_of(way, tmp_path), Faults("reorder", way)
    with trio.fail_after(10), mail_faults(faults):
        async with transport.open_inbox("ada", 1) as inbox:
            for number, sender in enumerate(("bob", "bob", "ada"), 1):
                await transport.send(envelope(number, str(number), sender=sender))
            assert await read(inbox, 3) == ["1", "3", "2"]
            for number in (4, 5):
                await transport.send(envelope(number, str(number)))
            assert await read(inbox, 2) == ["4", "5"]
    assert faults.struck == 1


@pytest.mark.slow
async def test_a_reader_that_nobody_woke_looks_by_itself(tmp_path: Path) -> None:
    transport, faults = transport_of("file", tmp_path), Faults("drop", "bell")
    heard: list[str] = []
    with trio.fail_after(10), mail_faults(faults):
        async with transport.open_inbox("ada", 1) as inbox, trio.open_nursery() as nursery:

            async def listen() -> None:
                heard.extend(await read(inbox, 1))

            nursery.start_soon(listen)
            await trio.testing.wait_all_tasks_blocked()
            await transport.send(envelope(1, "one"))
    assert heard == ["one"]
    assert faults.struck == 1


@pytest.mark.parametrize("deed", ["drop", "duplicate", "delay"])
async def test_a_disturbed_bridge_hands_over_each_letter_once(
    deed: MailFault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    taken: list[str] = []
    both = trio.Event()

    async def deliver(letter: Envelope) -> Receipt:
        taken.append(letter.body)
        if len(taken) == 2:
            both.set()
        return Receipt(id=letter.id, recipient=letter.recipient.name, transport="file", stored=Clock().now())

    open_receiver = partial(open_bridge, "receiver", tmp_path / "r", deliver, clock=Clock(), bury=DeadLetterList().add)
    sending = BridgeTransport("sender", tmp_path / "s", Clock(), DeadLetterList().add)
    faults = Faults(deed, "bridge", seconds=0.01)
    with trio.fail_after(10), mail_faults(faults):
        async with open_receiver(terms=OPEN) as path:
            for number, body in enumerate(("one", "two"), 1):
                await sending.send(attrs.evolve(envelope(number, body), created=Clock().now()), Socket(path))
            async with open_forwarder(sending, lambda exc: pytest.fail(str(exc))):
                await both.wait()
    assert taken == ["one", "two"]
    assert faults.struck == 1

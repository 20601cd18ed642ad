"""Transports keep their promises when faults are injected below them."""

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
from coterie.mailbox.transports.bridge.listener import open_bridge
from coterie.mailbox.transports.bridge.transport import BridgeTransport, open_forwarder
from coterie.mailbox.transports.file import wakeup
from coterie.mailbox.transports.file.transport import FileTransport
from coterie.mailbox.transports.in_process.transport import QueueTransport
from tests.mailbox.file_mail import DeadLetterList, Names, envelope
from tests.mailbox.transports.bridge.bridged_transport import OPEN


@attrs.define(eq=False)
class Faults:
    """One kind of fault on one route, injected *times* times."""

    fault: MailFault
    route: MailRoute
    times: int = 1
    seconds: float = 0.0
    injected: int = 0

    def trigger(self, fault: MailFault, route: MailRoute, recipient: str) -> float | None:
        """As `MailFaults.trigger`."""
        if (fault, route) != (self.fault, self.route) or self.injected == self.times:
            return None
        assert recipient == "ada"
        self.injected += 1
        return self.seconds


def transport_of(route: MailRoute, directory: Path) -> QueueTransport | FileTransport:
    """Open a transport with mailboxes of ada and bob."""
    parts = Names(), None, Clock(), DeadLetterList().add
    return QueueTransport(*parts) if route == "queue" else FileTransport(directory, *parts)


async def read(inbox: Inbox, count: int) -> list[str]:
    """Return the bodies of the first *count* messages, acknowledging each batch when it is taken."""
    bodies: list[str] = []
    while len(bodies) < count:
        await inbox.wait()
        deliveries = inbox.take_nowait()
        bodies += [delivery.envelope.body for delivery in deliveries]
        await inbox.acknowledge([delivery.envelope.id for delivery in deliveries])
    return bodies


@pytest.mark.parametrize(
    ("fault", "at_first", "bodies"),
    [
        ("drop", [], ["1", "2", "3"]),
        ("duplicate", ["1", "2", "3"], ["1", "2", "3"]),
        ("delay", [], ["1", "2", "3"]),
        ("reorder", ["1", "3", "2"], ["1", "3", "2"]),
    ],
)
@pytest.mark.parametrize("route", ["queue", "file"])
async def test_faults_lose_and_duplicate_nothing_and_keep_the_order_of_each_sender(
    route: MailRoute, fault: MailFault, at_first: list[str], bodies: list[str], tmp_path: Path
) -> None:
    transport, faults = transport_of(route, tmp_path), Faults(fault, route, seconds=0.05)
    with trio.fail_after(10), mail_faults(faults):
        async with transport.open_inbox("ada", 1) as inbox:
            for number, sender in enumerate(("bob", "bob", "ada"), 1):
                await transport.send(envelope(number, str(number), sender=sender))
            first = [delivery.envelope for delivery in inbox.take_nowait()]
            assert [letter.body for letter in first] == at_first
            await inbox.acknowledge([letter.id for letter in first])
            assert at_first + await read(inbox, 3 - len(first)) == bodies
            assert inbox.take_nowait() == []
    async with transport.open_inbox("ada", 2) as inbox:
        assert inbox.take_nowait() == []
    assert faults.injected == 1


async def test_reader_polls_when_the_wakeup_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "POLL_INTERVAL", 0.02)
    transport, faults = transport_of("file", tmp_path), Faults("drop", "bell")
    with trio.fail_after(10), mail_faults(faults):
        async with transport.open_inbox("ada", 1) as inbox, trio.open_nursery() as nursery:
            nursery.start_soon(read, inbox, 1)
            await trio.testing.wait_all_tasks_blocked()
            await transport.send(envelope(1, "one"))
    assert faults.injected == 1


@pytest.mark.parametrize("fault", ["drop", "duplicate", "delay"])
async def test_bridge_with_faults_delivers_each_message_once(
    fault: MailFault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    faults = Faults(fault, "bridge", seconds=0.01)
    with trio.fail_after(10), mail_faults(faults):
        async with open_receiver(terms=OPEN) as path:
            for number, body in enumerate(("one", "two"), 1):
                await sending.send(attrs.evolve(envelope(number, body), created=Clock().now()), Socket(path))
            async with open_forwarder(sending, lambda exc: pytest.fail(str(exc))):
                await both.wait()
    assert taken == ["one", "two"]
    assert faults.injected == 1

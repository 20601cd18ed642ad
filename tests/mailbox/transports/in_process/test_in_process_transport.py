"""Behaviour of the in-process transport beyond the contract of all transports; see `test_transport_conformance`."""

import attrs
import pytest
import trio
import trio.testing

from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter, MailLimits
from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.mailbox.errors import MailboxFull
from coterie.mailbox.roster import LocalRoster
from coterie.mailbox.transports.in_process.transport import REMEMBERED, QueueTransport


def _queue(limits: MailLimits | None = None) -> tuple[QueueTransport, list[DeadLetter]]:
    roster, dead = LocalRoster(), list[DeadLetter]()
    for name in ("alice", "bob"):
        roster.join(name)
    return QueueTransport(roster, None, Clock(), dead.append, limits or MailLimits()), dead


def _envelope(body: str = "Hello.") -> Envelope:
    sender = Sender(name="alice", incarnation=1, session="s", kind="peer")
    return Envelope(sender=sender, recipient=Recipient(name="bob"), sequence=1, body=body, created=1.0)


async def test_receipt_names_the_queue_transport() -> None:
    queue, _ = _queue()
    assert (await queue.send(_envelope())).transport == "queue"


async def test_unsigned_mail_is_accepted_without_keys() -> None:
    queue, dead = _queue()
    envelope = _envelope()
    await queue.send(envelope)
    async with queue.open_inbox("bob", 1) as inbox:
        assert [delivery.envelope for delivery in inbox.take_nowait()] == [envelope]
    assert dead == []


async def test_a_cancelled_send_is_not_stored() -> None:
    queue, _ = _queue()
    with trio.CancelScope() as scope:
        scope.cancel()
        await queue.send(_envelope())
    assert scope.cancelled_caught
    assert queue.backlog("bob").messages == 0


async def test_waiting_reader_is_woken_without_polling(autojump_clock: trio.testing.MockClock) -> None:
    """Time does not pass while a reader waits and is woken, so nothing polls."""
    queue, _ = _queue()

    async def read() -> None:
        async with queue.open_inbox("bob", 1) as inbox:
            await inbox.wait()
            assert len(inbox.take_nowait()) == 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        await queue.send(_envelope())
    assert trio.current_time() == 0


async def test_wait_does_not_return_without_new_mail(autojump_clock: trio.testing.MockClock) -> None:
    queue, _ = _queue()
    await queue.send(_envelope())
    async with queue.open_inbox("bob", 1) as inbox:
        inbox.take_nowait()
        with trio.move_on_after(1000) as scope:
            await inbox.wait()
    assert scope.cancelled_caught


async def test_closed_inbox_takes_nothing_from_the_next_reader() -> None:
    queue, _ = _queue()
    async with queue.open_inbox("bob", 1) as old:
        pass
    await queue.send(_envelope())
    with pytest.raises(trio.ClosedResourceError):
        old.take_nowait()
    with pytest.raises(trio.ClosedResourceError):
        await old.wait()
    with pytest.raises(trio.ClosedResourceError):
        await old.acknowledge([])
    assert queue.backlog("bob").messages == 1


async def test_acknowledged_ids_are_bounded() -> None:
    queue, _ = _queue()
    first = _envelope()
    async with queue.open_inbox("bob", 1) as inbox:
        for envelope in (first, *(_envelope() for _ in range(REMEMBERED))):
            await queue.send(envelope)
            inbox.take_nowait()
            await inbox.acknowledge([envelope.id])
        await queue.send(first)
        assert len(inbox.take_nowait()) == 1


async def test_message_larger_than_an_empty_mailbox_is_refused() -> None:
    queue, _ = _queue(MailLimits(bytes=100))
    with pytest.raises(MailboxFull, match="full: 0 of 100 bytes"):
        await queue.send(_envelope())


async def test_no_byte_is_counted_when_no_mail_is_pending() -> None:
    """Covers acknowledged, dead-lettered, seen and copied messages."""
    queue, dead = _queue()
    read, seen, late = (_envelope(body) for body in ("read", "seen", "late"))
    for envelope in (read, seen, read, attrs.evolve(late, expires=1.0)):
        await queue.send(envelope)
    async with queue.open_inbox("bob", 1, seen={seen.id}) as inbox:
        assert [delivery.envelope for delivery in inbox.take_nowait()] == [read]
        await inbox.acknowledge([read.id])
    assert [letter.reason for letter in dead] == ["expired"]
    assert (queue.backlog("bob").messages, queue.backlog("bob").bytes) == (0, 0)

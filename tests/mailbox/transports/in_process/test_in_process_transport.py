"""Behaviour of the in-process transport beyond the contract of all transports; see `test_transport_conformance`."""

import pytest
import trio
import trio.testing

from coterie.clock import Clock
from coterie.mailbox.transports.in_process.transport import REMEMBERED, QueueTransport
from tests.mailbox.file_mail import DeadLetterList, Names, envelope


@pytest.fixture
def queue() -> QueueTransport:
    return QueueTransport(Names(), None, Clock(), DeadLetterList().add)


async def test_waiting_reader_is_woken_without_polling(
    queue: QueueTransport, autojump_clock: trio.testing.MockClock
) -> None:
    """Time does not pass while a reader waits and is woken, so nothing polls."""

    async def read() -> None:
        async with queue.open_inbox("ada", 1) as inbox:
            await inbox.wait()
            assert len(inbox.take_nowait()) == 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        await queue.send(envelope(1))
    assert trio.current_time() == 0


async def test_closed_inbox_takes_nothing_from_the_next_reader(queue: QueueTransport) -> None:
    async with queue.open_inbox("ada", 1) as old:
        pass
    await queue.send(envelope(1))
    with pytest.raises(trio.ClosedResourceError):
        old.take_nowait()
    with pytest.raises(trio.ClosedResourceError):
        await old.wait()
    with pytest.raises(trio.ClosedResourceError):
        await old.acknowledge([])
    assert queue.backlog("ada").messages == 1


async def test_acknowledged_ids_are_bounded(queue: QueueTransport) -> None:
    first = envelope(1)
    async with queue.open_inbox("ada", 1) as inbox:
        for message in (first, *(envelope(1) for _ in range(REMEMBERED))):
            await queue.send(message)
            inbox.take_nowait()
            await inbox.acknowledge([message.id])
        await queue.send(first)
        assert len(inbox.take_nowait()) == 1

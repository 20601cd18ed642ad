"""A reader batches mail that arrives at a high rate, without delaying senders that wait for answers."""

from pathlib import Path

import pytest
import trio
import trio.testing

from coterie.mailbox.transports.file import inbox as doze
from coterie.mailbox.transports.file import wakeup
from coterie.mailbox.transports.file.inbox import GATHERING, IN_A_ROW, WIDE_AWAKE, ReadBatching
from tests.mailbox.file_mail import envelope, take_sequences, transport


async def wait_often(dozing: ReadBatching, *, apart: float) -> None:
    """Wait as often as needed so that the next wait would batch if mail arrives at a high rate."""
    for _ in range(IN_A_ROW):
        assert not await dozing.delay_wakeup()
        dozing.note_messages(1)
        await trio.sleep(apart)


async def test_reader_does_not_batch_after_spaced_waits(autojump_clock: trio.testing.MockClock) -> None:
    dozing = ReadBatching()
    await wait_often(dozing, apart=GATHERING * 1.5)
    with trio.testing.assert_no_checkpoints():
        assert not await dozing.delay_wakeup()


@pytest.mark.parametrize("messages", [0, 1])
async def test_reader_batches_after_quick_waits_and_pauses_after_a_batch_of_one(
    autojump_clock: trio.testing.MockClock, messages: int
) -> None:
    dozing = ReadBatching()
    await wait_often(dozing, apart=GATHERING / 2)
    began = trio.current_time()
    assert await dozing.delay_wakeup()
    assert trio.current_time() - began == pytest.approx(GATHERING)
    dozing.note_messages(messages)
    await wait_often(dozing, apart=GATHERING / 2)
    assert not await dozing.delay_wakeup()
    await trio.sleep(WIDE_AWAKE)
    await wait_often(dozing, apart=GATHERING / 2)
    assert await dozing.delay_wakeup()


async def test_batched_mail_needs_no_wakeup_and_later_mail_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doze, "IN_A_ROW", 0)
    monkeypatch.setattr(doze, "GATHERING", 0.2)
    mail, lock = transport(tmp_path), tmp_path / "ada" / wakeup.LOCK_FILE
    async with mail.open_inbox("ada", 1) as inbox, trio.open_nursery() as nursery:
        nursery.start_soon(inbox.wait)
        await trio.testing.wait_all_tasks_blocked()
        await mail.send(envelope(1))
        assert lock.read_bytes() == b"0", "it is not to be rung"
        await trio.testing.wait_all_tasks_blocked()
        assert nursery.child_tasks, "it has been woken"
        while nursery.child_tasks:
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert take_sequences(inbox) == [1]
        # It has waited for a single message.
        nursery.start_soon(inbox.wait)
        await trio.testing.wait_all_tasks_blocked()
        assert lock.read_bytes() == b"1"
        with trio.fail_after(wakeup.POLL_INTERVAL / 2):
            await mail.send(envelope(2))
            while nursery.child_tasks:
                await trio.testing.wait_all_tasks_blocked(0.01)
        assert take_sequences(inbox) == [2]

"""A reader lets mail gather that comes thick, and nobody who waits for an answer has to pay for it."""

from pathlib import Path

import pytest
import trio
import trio.testing

from coterie.mailbox.transports.file import inbox as doze
from coterie.mailbox.transports.file import wakeup
from coterie.mailbox.transports.file.inbox import GATHERING, IN_A_ROW, WIDE_AWAKE, ReadBatching
from tests.mailbox.file_mail import envelope, take_sequences, transport


async def wait_often(dozing: ReadBatching, *, apart: float) -> None:
    """Until one more wait as soon as these would let mail gather, if they come thick."""
    for _ in range(IN_A_ROW):
        assert not await dozing.delay_wakeup()
        dozing.note_messages(1)
        await trio.sleep(apart)


async def test_who_waits_now_and_then_does_not_let_mail_gather(autojump_clock: trio.testing.MockClock) -> None:
    dozing = ReadBatching()
    await wait_often(dozing, apart=GATHERING * 1.5)
    with trio.testing.assert_no_checkpoints():
        assert not await dozing.delay_wakeup()


async def test_who_waits_again_and_again_does(autojump_clock: trio.testing.MockClock) -> None:
    dozing = ReadBatching()
    await wait_often(dozing, apart=GATHERING / 2)
    began = trio.current_time()
    assert await dozing.delay_wakeup()
    assert trio.current_time() - began == pytest.approx(GATHERING)


async def test_as_long_as_several_messages_come_of_it_it_goes_on(autojump_clock: trio.testing.MockClock) -> None:
    dozing = ReadBatching()
    await wait_often(dozing, apart=GATHERING / 2)
    for _ in range(5):
        assert await dozing.delay_wakeup()
        dozing.note_messages(1)
        dozing.note_messages(1)
    assert await dozing.delay_wakeup()


@pytest.mark.parametrize("messages", [0, 1])
async def test_when_no_more_than_one_has_come_of_it_it_is_wide_awake_for_a_while(
    autojump_clock: trio.testing.MockClock, messages: int
) -> None:
    dozing = ReadBatching()
    await wait_often(dozing, apart=GATHERING / 2)
    assert await dozing.delay_wakeup()
    dozing.note_messages(messages)
    await wait_often(dozing, apart=GATHERING / 2)
    assert not await dozing.delay_wakeup()
    await trio.sleep(WIDE_AWAKE)
    await wait_often(dozing, apart=GATHERING / 2)
    assert await dozing.delay_wakeup()


async def test_mail_that_gathers_comes_without_a_ring_and_the_next_is_rung_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doze, "IN_A_ROW", 0)
    monkeypatch.setattr(doze, "GATHERING", 0.2)
    post, lock = transport(tmp_path), tmp_path / "ada" / wakeup.LOCK_FILE
    async with post.open_inbox("ada", 1) as inbox, trio.open_nursery() as nursery:
        nursery.start_soon(inbox.wait)
        await trio.testing.wait_all_tasks_blocked()
        await post.send(envelope(1))
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
            await post.send(envelope(2))
            while nursery.child_tasks:
                await trio.testing.wait_all_tasks_blocked(0.01)
        assert take_sequences(inbox) == [2]

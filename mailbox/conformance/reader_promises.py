"""Promises about readers: one at a time, woken without loss, and told how much waits."""

import trio

from coterie.mailbox.conformance.harness import MailHarness, expect_error, ids_in, ids_of, promise
from coterie.mailbox.envelope import MessageId
from coterie.mailbox.errors import MailboxBusy, NameInvalid, UnknownRecipient


@promise()
async def promise_31_one_reader_at_a_time(post: MailHarness) -> None:
    """A mailbox has one reader; a second one is told that it is busy, and disturbs nothing."""
    sent = await post.send()
    async with post.open_inbox() as inbox:
        busy = await expect_error(MailboxBusy, post.peek())
        assert busy.name == "bob", "the error names the mailbox"
        assert ids_in(inbox.take_nowait()) == [sent.id], "the first reader has it still"


@promise()
async def promise_32_the_next_reader_follows(post: MailHarness) -> None:
    """When a reader has ended, however it did, the next one gets the mailbox."""

    async def fail() -> None:
        async with post.open_inbox() as inbox:
            inbox.take_nowait()
            raise RuntimeError("a reader fails")

    sent = await post.send()
    await expect_error(RuntimeError, fail())
    with trio.CancelScope() as scope:
        async with post.open_inbox():
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert ids_of(await post.read()) == [sent.id], "it is free after a failure and a cancellation"


@promise()
async def promise_33_readers_of_different_names(post: MailHarness) -> None:
    """Mailboxes of different names are read at the same time."""
    async with post.open_inbox("bob") as bob, post.open_inbox("carol") as carol:
        to_carol, to_bob = await post.send("carol"), await post.send("bob")
        assert ids_in(bob.take_nowait()) == [to_bob.id], "bob reads"
        assert ids_in(carol.take_nowait()) == [to_carol.id], "carol reads"


@promise()
async def promise_34_nobody_reads_for_a_wrong_name(post: MailHarness) -> None:
    """A mailbox of a name that is not on the roster can neither be opened nor counted."""
    for name in ("dave", "Bob", "../bob"):
        await expect_error((UnknownRecipient, NameInvalid), post.peek(name))
        try:
            post.transport.backlog(name)
        except (UnknownRecipient, NameInvalid):
            continue
        raise AssertionError(f"there is a backlog for {name!r}")


@promise()
async def promise_35_woken_by_what_came_before(post: MailHarness) -> None:
    """A reader that begins to wait when there is mail does not wait."""
    sent = await post.send()
    async with post.open_inbox() as inbox:
        await inbox.wait()
        assert ids_in(inbox.take_nowait()) == [sent.id], "it was there"


@promise()
async def promise_36_woken_by_what_comes(post: MailHarness) -> None:
    """A reader that waits is woken by the first message, and by each that follows."""
    reader_has, arrivals = trio.open_memory_channel[MessageId](0)

    async def read_all() -> None:
        async with post.open_inbox() as inbox:
            while True:
                await inbox.wait()
                for delivery in inbox.take_nowait():
                    await reader_has.send(delivery.envelope.id)

    async with trio.open_nursery() as nursery, reader_has, arrivals:
        nursery.start_soon(read_all)
        for _ in range(3):
            await _let_others_run()
            sent = await post.send()
            assert await arrivals.receive() == sent.id, "it slept through none"
        nursery.cancel_scope.cancel()


@promise()
async def promise_37_woken_after_taking(post: MailHarness) -> None:
    """What comes between taking and waiting is not slept through."""
    async with post.open_inbox() as inbox:
        await post.send()
        assert len(inbox.take_nowait()) == 1, "the first"
        sent = await post.send()
        await inbox.wait()
        assert ids_in(inbox.take_nowait()) == [sent.id], "the second woke it"


@promise()
async def promise_38_waiting_can_be_cancelled(post: MailHarness) -> None:
    """Waiting can be given up without losing a message or the next wake-up."""
    async with post.open_inbox() as inbox:
        with trio.move_on_after(0.01):
            while True:
                await inbox.wait()
                assert inbox.take_nowait() == [], "there is no mail yet"
        sent = await post.send()
        await inbox.wait()
        assert ids_in(inbox.take_nowait()) == [sent.id], "mail and wake-up are there"


@promise()
async def promise_39_a_restarted_reader_is_woken(post: MailHarness) -> None:
    """A reader that begins to wait is woken by what the last one left unacknowledged."""
    sent = await post.send()
    await post.peek()
    await post.restart()
    async with post.open_inbox() as inbox:
        await inbox.wait()
        assert ids_in(inbox.take_nowait()) == [sent.id], "it comes again"


@promise()
async def promise_40_the_backlog_is_what_is_not_acknowledged(post: MailHarness) -> None:
    """The backlog counts messages and their bytes until they are acknowledged, and dates the oldest."""
    empty = post.transport.backlog("bob")
    assert (empty.messages, empty.bytes, empty.oldest) == (0, 0, None), "nothing waits"
    now = post.clock.now()
    sent = [await post.send(created=now + number) for number in range(3)]
    size = sum(len(envelope.to_bytes()) for envelope in sent)
    async with post.open_inbox() as inbox:
        inbox.take_nowait(2)
        waiting = post.transport.backlog("bob")
        assert (waiting.messages, waiting.oldest) == (3, now), "what was taken still waits"
        assert size <= waiting.bytes <= 2 * size, "with its bytes"
        await inbox.acknowledge([sent[0].id])
        waiting = post.transport.backlog("bob")
        assert (waiting.messages, waiting.oldest) == (2, now + 1), "what was acknowledged does not"
        inbox.take_nowait()
        await inbox.acknowledge(ids_of(sent))
    empty = post.transport.backlog("bob")
    assert (empty.messages, empty.bytes, empty.oldest) == (0, 0, None), "nothing waits any more"
    assert post.transport.backlog("carol").messages == 0, "and never did for anybody else"


async def _let_others_run() -> None:
    # Long enough for a reader to fall asleep. The promise holds for one that has not; it is only tested less.
    for _ in range(20):
        await trio.lowlevel.checkpoint()

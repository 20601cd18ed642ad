"""Promises of mail transports about readers: one per mailbox, no missed wakeups, and an exact backlog."""

import trio

from coterie.mailbox.conformance.harness import MailHarness, expect_error, ids_in, ids_of
from coterie.mailbox.envelope import MessageId
from coterie.mailbox.errors import MailboxBusy, NameInvalid, UnknownRecipient


async def promise_31_one_reader_at_a_time(mail: MailHarness) -> None:
    """A mailbox has one reader. Opening it a second time raises `MailboxBusy` and does not affect that reader."""
    sent = await mail.send()
    async with mail.open_inbox() as inbox:
        busy = await expect_error(MailboxBusy, mail.peek())
        assert busy.name == "bob", "the error names the mailbox"
        assert ids_in(inbox.take_nowait()) == [sent.id], "the first reader has it still"


async def promise_32_the_next_reader_follows(mail: MailHarness) -> None:
    """When a reader has closed the mailbox, even by an error or a cancellation, another reader can open it."""

    async def fail() -> None:
        async with mail.open_inbox() as inbox:
            inbox.take_nowait()
            raise RuntimeError("the test fails this reader on purpose, to check that its mail is delivered again")

    sent = await mail.send()
    await expect_error(RuntimeError, fail())
    with trio.CancelScope() as scope:
        async with mail.open_inbox():
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert ids_of(await mail.read()) == [sent.id], "it is free after a failure and a cancellation"


async def promise_33_mailboxes_have_separate_readers(mail: MailHarness) -> None:
    """Mailboxes of different names can be read at the same time."""
    async with mail.open_inbox("bob") as bob, mail.open_inbox("carol") as carol:
        to_carol, to_bob = await mail.send("carol"), await mail.send("bob")
        assert ids_in(bob.take_nowait()) == [to_bob.id], "bob reads"
        assert ids_in(carol.take_nowait()) == [to_carol.id], "carol reads"


async def promise_34_unknown_names_cannot_be_read(mail: MailHarness) -> None:
    """For a name that is not on the roster, opening the mailbox and asking for its backlog raise an error."""
    for name in ("dave", "Bob", "../bob"):
        await expect_error((UnknownRecipient, NameInvalid), mail.peek(name))
        try:
            mail.transport.backlog(name)
        except (UnknownRecipient, NameInvalid):
            continue
        raise AssertionError(f"`backlog` accepted the invalid or unknown name {name!r}; it must raise an error")


async def promise_35_pending_mail_wakes_a_reader(mail: MailHarness) -> None:
    """`Inbox.wait` returns immediately if a message is pending."""
    sent = await mail.send()
    async with mail.open_inbox() as inbox:
        await inbox.wait()
        assert ids_in(inbox.take_nowait()) == [sent.id], "it was there"


async def promise_36_new_mail_wakes_a_reader(mail: MailHarness) -> None:
    """A reader that waits is woken by the first message, and by each later message."""
    reader_has, arrivals = trio.open_memory_channel[MessageId](0)

    async def read_all() -> None:
        async with mail.open_inbox() as inbox:
            while True:
                await inbox.wait()
                for delivery in inbox.take_nowait():
                    await reader_has.send(delivery.envelope.id)

    async with trio.open_nursery() as nursery, reader_has, arrivals:
        nursery.start_soon(read_all)
        for _ in range(3):
            # Long enough for a reader to fall asleep. If it has not, the promise still holds but is tested less.
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            sent = await mail.send()
            assert await arrivals.receive() == sent.id, "each message wakes the reader"
        nursery.cancel_scope.cancel()


async def promise_37_mail_after_taking_wakes_a_reader(mail: MailHarness) -> None:
    """A message that arrives after the last `take_nowait` and before `wait` wakes the reader."""
    async with mail.open_inbox() as inbox:
        await mail.send()
        assert len(inbox.take_nowait()) == 1, "the first"
        sent = await mail.send()
        await inbox.wait()
        assert ids_in(inbox.take_nowait()) == [sent.id], "the second woke it"


async def promise_38_waiting_can_be_cancelled(mail: MailHarness) -> None:
    """Cancelling a wait loses neither a message nor the next wakeup."""
    async with mail.open_inbox() as inbox:
        with trio.move_on_after(0.01):
            while True:
                await inbox.wait()
                assert inbox.take_nowait() == [], "there is no mail yet"
        sent = await mail.send()
        await inbox.wait()
        assert ids_in(inbox.take_nowait()) == [sent.id], "mail and wake-up are there"


async def promise_39_a_restarted_reader_is_woken(mail: MailHarness) -> None:
    """`wait` of a new reader returns for messages that the last reader left unacknowledged."""
    sent = await mail.send()
    await mail.peek()
    await mail.restart()
    async with mail.open_inbox() as inbox:
        await inbox.wait()
        assert ids_in(inbox.take_nowait()) == [sent.id], "it is delivered again"


async def promise_40_the_backlog_counts_unacknowledged_mail(mail: MailHarness) -> None:
    """The backlog has the number, the bytes and the oldest creation time of unacknowledged messages."""
    empty = mail.transport.backlog("bob")
    assert (empty.messages, empty.bytes, empty.oldest) == (0, 0, None), "nothing waits"
    now = mail.clock.now()
    sent = [await mail.send(created=now + number) for number in range(3)]
    size = sum(len(envelope.to_bytes()) for envelope in sent)
    async with mail.open_inbox() as inbox:
        inbox.take_nowait(2)
        waiting = mail.transport.backlog("bob")
        assert (waiting.messages, waiting.oldest) == (3, now), "what was taken still waits"
        assert size <= waiting.bytes <= 2 * size, "with its bytes"
        await inbox.acknowledge([sent[0].id])
        waiting = mail.transport.backlog("bob")
        assert (waiting.messages, waiting.oldest) == (2, now + 1), "what was acknowledged does not"
        inbox.take_nowait()
        await inbox.acknowledge(ids_of(sent))
    empty = mail.transport.backlog("bob")
    assert (empty.messages, empty.bytes, empty.oldest) == (0, 0, None), "nothing is pending"
    assert mail.transport.backlog("carol").messages == 0, "and the backlog of carol was always empty"

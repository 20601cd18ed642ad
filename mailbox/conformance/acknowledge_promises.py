"""Promises of mail transports about acknowledging: a message is delivered again only until it is acknowledged."""

from coterie.mailbox.conformance.harness import MailHarness, expect_error, ids_in, ids_of
from coterie.mailbox.envelope import new_message_id


async def promise_21_taken_once_by_one_reader(mail: MailHarness) -> None:
    """While an inbox is open, it returns each message only once, whether the message was acknowledged or not."""
    sent = await mail.send()
    async with mail.open_inbox() as inbox:
        assert ids_in(inbox.take_nowait()) == [sent.id], "it is returned"
        assert inbox.take_nowait() == [], "it is not returned again before it is acknowledged"
        await inbox.acknowledge([sent.id])
        assert inbox.take_nowait() == [], "nor after it was acknowledged"


async def promise_22_acknowledged_mail_is_not_redelivered(mail: MailHarness) -> None:
    """An acknowledged message is not delivered again, whichever process restarts."""
    await mail.send_many(3)
    assert len(await mail.read()) == 3, "all are delivered"
    assert await mail.peek() == [], "not to the next reader"
    await mail.restart()
    assert await mail.peek() == [], "nor after a restart"


async def promise_23_unacknowledged_mail_is_redelivered(mail: MailHarness) -> None:
    """Messages taken but not acknowledged are delivered to the next reader, marked as delivered again."""
    sent = ids_of(await mail.send_many(3))
    assert ids_in(await mail.peek()) == sent, "a reader ends without acknowledging"
    again = await mail.peek()
    assert ids_in(again) == sent, "the next one gets it"
    await mail.restart()
    again += await mail.peek()
    assert ids_in(again) == sent * 2, "also after a restart"
    assert all(delivery.is_again for delivery in again), "and they are marked as delivered again"


async def promise_24_new_mail_is_not_marked(mail: MailHarness) -> None:
    """A message that no reader has taken before is not marked as delivered again."""
    await mail.send_many(2)
    assert [delivery.is_again for delivery in await mail.peek()] == [False, False], "it is new"


async def promise_25_mail_is_acknowledged_in_any_order(mail: MailHarness) -> None:
    """A reader may acknowledge messages in any order. The next reader gets exactly the unacknowledged messages."""
    sent = ids_of(await mail.send_many(6))
    async with mail.open_inbox() as inbox:
        inbox.take_nowait()
        await inbox.acknowledge([sent[5], sent[1]])
        await inbox.acknowledge([sent[3]])
    await mail.restart()
    async with mail.open_inbox() as inbox:
        assert ids_in(inbox.take_nowait()) == [sent[0], sent[2], sent[4]], "the others are delivered again"
        await inbox.acknowledge([sent[4]])
        await inbox.acknowledge([sent[0]])
    assert ids_in(await mail.peek()) == [sent[2]], "fewer each time"


async def promise_26_acknowledging_twice_does_no_harm(mail: MailHarness) -> None:
    """Acknowledging a message a second time has no effect, nor has acknowledging an empty list of messages."""
    first, second = ids_of(await mail.send_many(2))
    async with mail.open_inbox() as inbox:
        inbox.take_nowait(1)
        await inbox.acknowledge([])
        await inbox.acknowledge([first, first])
        await inbox.acknowledge([first])
        assert mail.transport.backlog("bob").messages == 1, "it is counted once"
    assert ids_in(await mail.peek()) == [second], "no other message is acknowledged"


async def promise_27_only_taken_mail_is_acknowledged(mail: MailHarness) -> None:
    """Acknowledging a message that this reader did not take raises `ValueError`.

    Then none of the messages passed in the same call is acknowledged.
    """
    earlier = (await mail.send()).id
    await mail.read()
    taken, waiting = ids_of(await mail.send_many(2))
    other = (await mail.send("carol")).id
    async with mail.open_inbox() as inbox:
        inbox.take_nowait(1)
        for wrong in (new_message_id(), waiting, other, earlier):
            await expect_error(ValueError, inbox.acknowledge([taken, wrong]))
    await mail.restart()
    assert ids_in(await mail.peek()) == [taken, waiting], "no message was acknowledged"
    assert ids_in(await mail.peek("carol")) == [other], "nor one in another mailbox"


async def promise_28_mail_in_the_transcript_is_dropped(mail: MailHarness) -> None:
    """A reader that passes the ids in its transcript does not get those messages. They count as acknowledged."""
    sent = ids_of(await mail.send_many(3))
    await mail.peek()
    await mail.restart()
    assert ids_of(await mail.read(seen={sent[0], sent[2]})) == [sent[1]], "only the message that the transcript lacks"
    await mail.restart()
    assert await mail.peek() == [], "nothing is delivered again"
    assert mail.transport.backlog("bob").messages == 0, "nothing is pending"


async def promise_29_mail_in_the_transcript_is_no_dead_letter(mail: MailHarness) -> None:
    """A message in the reader's transcript never becomes a dead letter.

    This holds even if it has expired since, or was addressed to an earlier incarnation (start) of the recipient.
    """
    sent = [await mail.send(expires=mail.clock.now() + 10), await mail.send(start=1)]
    await mail.peek()
    mail.clock.advance(60)
    mail.roster.join("bob")
    assert await mail.read(seen=set(ids_of(sent))) == [], "it was read before"
    assert mail.dead_letters.letters == [], "there are no dead letters"


async def promise_30_a_second_reader_can_acknowledge(mail: MailHarness) -> None:
    """A message that is delivered to a second reader can be acknowledged by that reader."""
    await mail.send_many(2)
    await mail.peek()
    assert len(await mail.read()) == 2, "the second reader has both"
    await mail.restart()
    assert await mail.peek() == [], "they are not delivered again"

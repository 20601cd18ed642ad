"""Promises about acknowledging: once acknowledged never again, until then again."""

from coterie.mailbox.conformance.harness import MailHarness, expect_error, ids_in, ids_of, promise
from coterie.mailbox.envelope import new_message_id


@promise()
async def promise_21_taken_once_by_one_reader(post: MailHarness) -> None:
    """An inbox gives a message once, acknowledged or not."""
    sent = await post.send()
    async with post.open_inbox() as inbox:
        assert ids_in(inbox.take_nowait()) == [sent.id], "it is given"
        assert inbox.take_nowait() == [], "and not again while it waits for its acknowledgement"
        await inbox.acknowledge([sent.id])
        assert inbox.take_nowait() == [], "nor after it"


@promise()
async def promise_22_acknowledged_is_never_again(post: MailHarness) -> None:
    """An acknowledged message is not delivered again, whatever is restarted."""
    await post.send_many(3)
    assert len(await post.read()) == 3, "all are delivered"
    assert await post.peek() == [], "not to the next reader"
    await post.restart()
    assert await post.peek() == [], "nor after a restart"


@promise()
async def promise_23_unacknowledged_comes_again(post: MailHarness) -> None:
    """What a reader took and did not acknowledge is delivered to the next one, marked as delivered again."""
    sent = ids_of(await post.send_many(3))
    assert ids_in(await post.peek()) == sent, "a reader ends without acknowledging"
    again = await post.peek()
    assert ids_in(again) == sent, "the next one gets it"
    await post.restart()
    again += await post.peek()
    assert ids_in(again) == sent * 2, "also after a restart"
    assert all(delivery.is_again for delivery in again), "and is told that somebody may have had it"


@promise()
async def promise_24_new_mail_is_not_marked(post: MailHarness) -> None:
    """What no reader has had is not marked as delivered again."""
    await post.send_many(2)
    assert [delivery.is_again for delivery in await post.peek()] == [False, False], "it is new"


@promise()
async def promise_25_in_any_order(post: MailHarness) -> None:
    """Messages may be acknowledged in any order; those left out come again, and no others."""
    sent = ids_of(await post.send_many(6))
    async with post.open_inbox() as inbox:
        inbox.take_nowait()
        await inbox.acknowledge([sent[5], sent[1]])
        await inbox.acknowledge([sent[3]])
    await post.restart()
    async with post.open_inbox() as inbox:
        assert ids_in(inbox.take_nowait()) == [sent[0], sent[2], sent[4]], "the gaps come again"
        await inbox.acknowledge([sent[4]])
        await inbox.acknowledge([sent[0]])
    assert ids_in(await post.peek()) == [sent[2]], "and fewer each time"


@promise()
async def promise_26_acknowledging_twice_does_no_harm(post: MailHarness) -> None:
    """Acknowledging a message twice, or none at all, does no harm."""
    first, second = ids_of(await post.send_many(2))
    async with post.open_inbox() as inbox:
        inbox.take_nowait(1)
        await inbox.acknowledge([])
        await inbox.acknowledge([first, first])
        await inbox.acknowledge([first])
        assert post.transport.backlog("bob").messages == 1, "it is counted off once"
    assert ids_in(await post.peek()) == [second], "and nothing else with it"


@promise()
async def promise_27_only_what_was_taken(post: MailHarness) -> None:
    """Acknowledging what this reader did not take is an error, and acknowledges nothing."""
    earlier = (await post.send()).id
    await post.read()
    taken, waiting = ids_of(await post.send_many(2))
    other = (await post.send("carol")).id
    async with post.open_inbox() as inbox:
        inbox.take_nowait(1)
        for wrong in (new_message_id(), waiting, other, earlier):
            await expect_error(ValueError, inbox.acknowledge([taken, wrong]))
    await post.restart()
    assert ids_in(await post.peek()) == [taken, waiting], "nothing of it was acknowledged"
    assert ids_in(await post.peek("carol")) == [other], "nor of another's"


@promise()
async def promise_28_what_the_transcript_has_is_dropped(post: MailHarness) -> None:
    """A reader that says which ids its transcript has is not given those; they count as acknowledged."""
    sent = ids_of(await post.send_many(3))
    await post.peek()
    await post.restart()
    assert ids_of(await post.read(seen={sent[0], sent[2]})) == [sent[1]], "only what the transcript lacks"
    await post.restart()
    assert await post.peek() == [], "and it is over"
    assert post.transport.backlog("bob").messages == 0, "nothing waits"


@promise()
async def promise_29_what_the_transcript_has_is_no_dead_letter(post: MailHarness) -> None:
    """What the transcript has is not buried because it expired or was for the start that read it."""
    sent = [await post.send(expires=post.clock.now() + 10), await post.send(start=1)]
    await post.peek()
    post.clock.advance(60)
    post.roster.join("bob")
    assert await post.read(seen=set(ids_of(sent))) == [], "it was read"
    assert post.dead_letters.letters == [], "and not in vain"


@promise()
async def promise_30_a_second_reader_can_finish(post: MailHarness) -> None:
    """What comes again can be acknowledged by whoever took it last, and then is over."""
    await post.send_many(2)
    await post.peek()
    assert len(await post.read()) == 2, "the second reader has both"
    await post.restart()
    assert await post.peek() == [], "and they are over"

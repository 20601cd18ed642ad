"""Promises about sending: the meaning of a receipt, and delivery once, whole, to the right recipient."""

import attrs
import trio

from coterie.mailbox.conformance.harness import MEMBERS, MailHarness, expect_error, ids_in, ids_of, promise
from coterie.mailbox.contract import Receipt
from coterie.mailbox.envelope import Envelope, new_message_id
from coterie.mailbox.errors import UnknownRecipient


@promise()
async def promise_01_a_receipt_names_what_is_stored(post: MailHarness) -> None:
    """A receipt gives the message's id, its recipient, and when it was stored."""
    post.clock.advance(3600)
    before, envelope = post.clock.now(), post.new_message()
    receipt = await post.transport.send(envelope)
    assert (receipt.id, receipt.recipient) == (envelope.id, "bob"), "a receipt is for the message that was sent"
    assert before <= receipt.stored <= post.clock.now(), "the time of storing is read from the session's clock"


@promise()
async def promise_02_a_receipt_means_stored(post: MailHarness) -> None:
    """A message with a receipt survives a restart, whether or not anybody was reading."""
    sent = await post.send_many(3)
    await post.restart()
    sent += await post.send_many(2)
    await post.restart()
    assert ids_of(await post.read()) == ids_of(sent), "receipted mail is there after a restart"


@promise()
async def promise_03_without_a_receipt_nothing_is_stored(post: MailHarness) -> None:
    """A message that was refused is never delivered, also not when its recipient comes later."""
    await expect_error(UnknownRecipient, post.send("dave"))
    post.roster.join("dave")
    assert post.transport.backlog("dave").messages == 0, "nothing waits of what was refused"
    assert await post.read("dave") == [], "refused mail is not delivered"


@promise()
async def promise_04_a_cancelled_send_is_whole_or_absent(post: MailHarness) -> None:
    """A cancelled send leaves the message stored whole or not at all, and harms no other."""
    envelopes = [post.new_message() for _ in range(20)]
    receipts: list[Receipt] = []

    async def send(envelope: Envelope, scope: trio.CancelScope) -> None:
        with scope:
            receipts.append(await post.transport.send(envelope))

    async with trio.open_nursery() as nursery:
        scopes = [trio.CancelScope() for _ in envelopes]
        for envelope, scope in zip(envelopes, scopes, strict=True):
            nursery.start_soon(send, envelope, scope)
        scopes[0].cancel()
        await trio.lowlevel.checkpoint()
        for scope in scopes[1::2]:
            scope.cancel()
    read = await post.read()
    assert all(envelope in envelopes for envelope in read), "what was stored is whole"
    assert len(set(ids_of(read))) == len(read), "nothing is stored twice"
    assert {receipt.id for receipt in receipts} <= set(ids_of(read)), "what has a receipt is stored"
    assert post.dead_letters.letters == [], "no part of a message was left"


@promise()
async def promise_05_a_message_sent_twice_is_delivered_once(post: MailHarness) -> None:
    """A message that is sent again under its id, because the sender did not hear back, is delivered once."""
    envelope = await post.send()
    other = await post.send()
    await post.transport.send(envelope)
    assert ids_of(await post.read()) == [envelope.id, other.id], "a copy is dropped, in the place of the first"
    assert post.transport.backlog("bob").messages == 0, "a copy does not go on waiting"


@promise()
async def promise_06_a_copy_of_what_was_acknowledged_is_dropped(post: MailHarness) -> None:
    """A copy that comes after its message was taken or acknowledged is not delivered to that reader."""
    async with post.open_inbox() as inbox:
        envelope = await post.send()
        assert len(inbox.take_nowait()) == 1, "the first is delivered"
        await post.transport.send(envelope)
        assert inbox.take_nowait() == [], "a copy of what was taken is dropped"
        await inbox.acknowledge([envelope.id])
        await post.transport.send(envelope)
        assert inbox.take_nowait() == [], "a copy of what was acknowledged is dropped"
    assert post.dead_letters.letters == [], "a copy is no dead letter"


@promise()
async def promise_07_every_field_arrives(post: MailHarness) -> None:
    """Summary, reply, group, trace context, expiry and all else arrive as they were sent."""
    sent = await post.send(
        body="Look at this.",
        summary="a thing to look at",
        in_reply_to=new_message_id(),
        group="g-1",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        expires=post.clock.now() + 60.5,
    )
    (read,) = await post.read()
    # A hop in between may sign anew, and says for itself which session a message comes from.
    same = attrs.evolve(read, mac=sent.mac, sender=attrs.evolve(read.sender, session=sent.sender.session))
    assert same == sent, f"{read} is not {sent}"


@promise(need="macs")
async def promise_08_what_arrives_is_what_was_signed(post: MailHarness) -> None:
    """The reader gets the very bytes that the sender signed."""
    sent = await post.send(body='{"a":  1}', created=post.clock.now() + 0.1)
    (read,) = await post.read()
    assert read.to_bytes() == sent.to_bytes(), "the bytes are the same"


@promise()
async def promise_09_nobody_gets_the_mail_of_another(post: MailHarness) -> None:
    """A message is delivered to the name it was sent to, and to no other."""
    sent = {name: await post.send(name, sender="carol") for name in MEMBERS for _ in range(2)}
    for name in MEMBERS:
        read = await post.read(name)
        assert {envelope.recipient.name for envelope in read} == {name}, f"{name} gets mail for {name}"
        assert read[-1].id == sent[name].id, f"all mail for {name} is there"


@promise()
async def promise_10_sessions_do_not_mix(post: MailHarness) -> None:
    """Two sessions with members of the same names do not get each other's mail."""
    async with post.elsewhere() as other:
        here, there = await post.send(), await other.send()
        assert ids_of(await other.read()) == [there.id], "the other session has its own"
        assert ids_of(await post.read()) == [here.id], "and this one its own"


@promise()
async def promise_11_a_broadcast_is_one_message_each(post: MailHarness) -> None:
    """The messages of a broadcast share a group, and each is delivered and acknowledged on its own."""
    for name in ("bob", "carol"):
        await post.send(name, group="all-hands")
    assert [envelope.group for envelope in await post.read("bob")] == ["all-hands"], "bob has his"
    (delivery,) = await post.peek("carol")
    assert delivery.envelope.group == "all-hands", "carol's waits although bob acknowledged his"


@promise()
async def promise_12_mail_waits_for_a_reader(post: MailHarness) -> None:
    """Mail can be sent to a member that was never started to read, and to oneself."""
    post.roster.join("dave")
    sent = [await post.send("dave", sender="alice"), await post.send("dave", sender="dave")]
    deliveries = await post.peek("dave")
    assert ids_in(deliveries) == ids_of(sent), "both wait"

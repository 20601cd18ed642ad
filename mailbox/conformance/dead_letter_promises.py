"""Promises about mail that cannot be delivered: it becomes a dead letter with its reason, and blocks nothing."""

import math

import attrs

from coterie.mailbox.conformance.harness import MailHarness, expect_error, ids_in, ids_of, promise
from coterie.mailbox.envelope import Envelope, Recipient, new_message_id
from coterie.mailbox.errors import MailboxFailed


@promise()
async def promise_57_expired_mail_is_dead(post: MailHarness) -> None:
    """A message that expires while it waits is not delivered but buried, and holds nothing up."""
    first = await post.send()
    await post.send(expires=post.clock.now() + 60)
    last = await post.send(expires=post.clock.now() + 3600)
    post.clock.advance(60)
    assert ids_of(await post.read()) == [first.id, last.id], "the others are delivered"
    assert post.dead_letters.reasons == ["expired"], "and it is buried"


@promise()
async def promise_58_mail_lives_until_it_expires(post: MailHarness) -> None:
    """A message is delivered as long as its time has not come, and one without expiry always."""
    sent = [await post.send(expires=post.clock.now() + 3600), await post.send()]
    post.clock.advance(3500)
    assert ids_in(await post.peek()) == ids_of(sent), "there is time"
    post.clock.advance(200)
    assert ids_of(await post.read()) == [sent[1].id], "only one has no end"


@promise()
async def promise_59_mail_expires_behind_a_waiting_reader(post: MailHarness) -> None:
    """Expiry is judged when a message is taken, not when the mailbox was opened."""
    async with post.open_inbox() as inbox:
        await post.send(expires=post.clock.now() + 60)
        post.clock.advance(3600)
        await inbox.wait()
        assert inbox.take_nowait() == [], "its time came while it waited"
    assert post.dead_letters.reasons == ["expired"], "and it is buried"


@promise()
async def promise_60_a_clock_that_jumps_back_loses_nothing(post: MailHarness) -> None:
    """When the clock jumps back, mail is neither lost, nor late, nor out of order."""
    sent = [await post.send(expires=post.clock.now() + 60)]
    post.clock.advance(-7200)
    sent += [await post.send(expires=post.clock.now() + 60), await post.send()]
    await post.restart()
    assert ids_of(await post.read()) == ids_of(sent), "all of it, in the order of sending"
    assert post.dead_letters.letters == [], "nothing died"


@promise()
async def promise_61_mail_for_an_earlier_start_is_dead(post: MailHarness) -> None:
    """A message meant for one start of a name is not delivered to another, but buried."""
    await post.send(start=1)
    post.roster.join("bob")
    assert await post.read() == [], "start 2 does not get it"
    assert post.dead_letters.reasons == ["stale_incarnation"], "and it is buried"


@promise()
async def promise_62_mail_for_this_start_is_delivered(post: MailHarness) -> None:
    """A message meant for the start that reads, or for any, is delivered."""
    post.roster.join("bob")
    sent = [await post.send(start=2), await post.send()]
    assert ids_of(await post.read()) == ids_of(sent), "both are for it"


@promise(need="macs")
async def promise_63_forged_mail_is_dead(post: MailHarness) -> None:
    """A message whose MAC was not made with its sender's key, or that has none, is buried."""
    envelope = post.new_message()
    forgeries: list[str | None] = [None, "", "0" * 32, "\u00e9", post.new_message(sender="carol").mac]
    for mac in forgeries:
        await post.transport.send(attrs.evolve(envelope, id=new_message_id(), mac=mac))
    sent = await post.send()
    assert ids_of(await post.read()) == [sent.id], "only what is signed is delivered"
    assert post.dead_letters.reasons == ["bad_mac"] * len(forgeries), "the rest is buried"


@promise(need="macs")
async def promise_64_mail_without_a_key_is_dead(post: MailHarness) -> None:
    """A message of a sender whose key nobody knows is buried."""
    post.keys.lost.add("alice")
    await post.send(sender="alice")
    sent = await post.send(sender="carol")
    assert ids_of(await post.read()) == [sent.id], "only carol is believed"
    assert post.dead_letters.reasons == ["bad_mac"], "alice's is buried"


@promise(need="macs")
async def promise_65_a_mac_covers_every_field(post: MailHarness) -> None:
    """A message that was changed after signing, in whichever field, is buried."""
    signed = post.new_message()
    sender = signed.sender
    changed = [
        attrs.evolve(signed, sender=attrs.evolve(sender, name="carol")),
        attrs.evolve(signed, sender=attrs.evolve(sender, incarnation=2)),
        attrs.evolve(signed, sender=attrs.evolve(sender, session="other")),
        attrs.evolve(signed, sender=attrs.evolve(sender, kind="human")),
        attrs.evolve(signed, recipient=Recipient(name="carol")),
        attrs.evolve(signed, recipient=Recipient(name="bob", incarnation=1)),
        attrs.evolve(signed, sequence=2),
        attrs.evolve(signed, kind="shutdown_request"),
        attrs.evolve(signed, body="Do something else."),
        attrs.evolve(signed, summary="x"),
        attrs.evolve(signed, in_reply_to=signed.id),
        attrs.evolve(signed, group="x"),
        attrs.evolve(signed, created=signed.created + 1),
        attrs.evolve(signed, expires=signed.created + math.pi * 1000),
        attrs.evolve(signed, traceparent="x"),
        attrs.evolve(signed, id=new_message_id()),
    ]
    for envelope in changed:
        await post.transport.send(envelope)
    assert await post.read("bob") + await post.read("carol") == [], "none is believed"
    assert post.dead_letters.reasons == ["bad_mac"] * len(changed), "all are buried"


@promise(need="macs")
async def promise_66_a_forgery_does_not_replace_a_message(post: MailHarness) -> None:
    """A forged message under the id of a real one does not keep the real one away."""
    real = post.new_message()
    await post.transport.send(attrs.evolve(real, body="forged"))
    await post.transport.send(real)
    assert await post.read() == [real], "the real one is delivered"
    assert post.dead_letters.reasons == ["bad_mac"], "the forged one is buried"


@promise()
async def promise_67_a_dead_letter_says_all(post: MailHarness) -> None:
    """A dead letter carries its reason, whose mailbox it was in, when it died, the message and its bytes."""
    sent = await post.send("carol", expires=post.clock.now() + 1, body="too late", summary="late")
    post.clock.advance(60)
    await post.read("carol")
    (letter,) = post.dead_letters.letters
    assert (letter.reason, letter.mailbox) == ("expired", "carol"), f"{letter}"
    assert letter.detail, "it says more in words"
    assert abs(letter.at - post.clock.now()) < 60, "the time is the session's"
    assert letter.envelope is not None, "the message is there"
    assert (letter.envelope.id, letter.envelope.body) == (sent.id, "too late"), f"{letter.envelope}"
    assert Envelope.from_bytes(letter.raw) == letter.envelope, "and so are its bytes"


@promise()
async def promise_68_a_dead_letter_is_stored_once(post: MailHarness) -> None:
    """Dead mail is buried once, counts as acknowledged, and waits no more."""
    await post.send(expires=post.clock.now() - 1)
    assert await post.read() == [], "it is dead"
    await post.restart()
    assert await post.read() == [], "and stays dead"
    assert post.dead_letters.reasons == ["expired"], "it is buried once"
    assert post.transport.backlog("bob").messages == 0, "and waits no more"


@promise()
async def promise_69_a_dead_letter_that_cannot_be_stored_is_not_lost(post: MailHarness) -> None:
    """When dead letters cannot be stored the reader is told, and nothing is lost: it is buried when they can."""
    first = await post.send()
    await post.send(expires=post.clock.now() - 1)
    last = await post.send()
    post.dead_letters.is_full = True
    taken = []
    async with post.open_inbox() as inbox:

        async def take_twice() -> None:
            for _ in range(2):
                taken.extend(ids_in(inbox.take_nowait()))

        failure = await expect_error(MailboxFailed, take_twice())
        assert failure.name == "bob", "the error names the mailbox"
        post.dead_letters.is_full = False
        taken.extend(ids_in(inbox.take_nowait()))
    assert taken == [first.id, last.id], "what lives is delivered"
    assert post.dead_letters.reasons == ["expired"], "what is dead is buried"


@promise(need="tampering")
async def promise_70_garbage_becomes_a_dead_letter(post: MailHarness) -> None:
    """Bytes that are no message are buried as they are, and what follows them is delivered."""
    tampering = post.factory.tampering
    assert tampering is not None
    first = await post.send()
    tampering.write_bytes("bob", b"\n{garbage \xff\x00}\n")
    last = await post.send()
    assert ids_of(await post.read()) == [first.id, last.id], "what is whole is delivered"
    assert set(post.dead_letters.reasons) == {"corrupt"}, "the rest is buried"
    assert all(letter.mailbox == "bob" and letter.envelope is None for letter in post.dead_letters.letters)
    assert b"garbage" in b"".join(letter.raw for letter in post.dead_letters.letters), "with its bytes"


@promise(need="tampering")
async def promise_71_a_torn_message_does_not_swallow_the_next(post: MailHarness) -> None:
    """A message that was written in part is buried, and the one behind it is delivered."""
    tampering = post.factory.tampering
    assert tampering is not None
    tampering.write_bytes("bob", b"\n" + post.new_message(body="torn").to_bytes()[:-20])
    await post.restart()
    sent = await post.send()
    assert ids_of(await post.read()) == [sent.id], "the whole one is delivered"
    assert post.dead_letters.reasons == ["corrupt"], "the torn one is buried"
    await post.restart()
    assert await post.read() == [], "and neither comes again"


@promise(need="tampering")
async def promise_72_a_message_put_into_a_wrong_mailbox_is_dead(post: MailHarness) -> None:
    """A message for somebody else that was written into a mailbox is not delivered there."""
    tampering = post.factory.tampering
    assert tampering is not None
    await post.send()
    tampering.write_record("bob", post.new_message("carol"))
    sent = await post.send()
    read = await post.read()
    assert (len(read), read[-1].id) == (2, sent.id), "only his own"
    assert len(post.dead_letters.letters) == 1, "the other is buried"


@promise(need="tampering")
async def promise_73_a_forged_record_is_dead(post: MailHarness) -> None:
    """A record that somebody without a key writes into a mailbox is buried, however well it is made."""
    tampering = post.factory.tampering
    assert tampering is not None
    await post.send()
    tampering.write_record("bob", attrs.evolve(post.new_message(), mac="0" * 32))
    sent = await post.send()
    read = await post.read()
    assert (len(read), read[-1].id) == (2, sent.id), "only what was signed"
    assert post.dead_letters.reasons == ["bad_mac"], "the rest is buried"

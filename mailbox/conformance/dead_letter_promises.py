"""Promises of mail transports about undeliverable mail: it is stored as a dead letter and blocks no other mail."""

import math

import attrs

from coterie.mailbox.conformance.harness import MailHarness, expect_error, ids_in, ids_of, promise
from coterie.mailbox.envelope import Envelope, Recipient, new_message_id
from coterie.mailbox.errors import MailboxFailed


async def promise_57_expired_mail_is_dead_lettered(mail: MailHarness) -> None:
    """A message that expires while it is pending becomes a dead letter, and does not delay other messages."""
    first = await mail.send()
    await mail.send(expires=mail.clock.now() + 60)
    last = await mail.send(expires=mail.clock.now() + 3600)
    mail.clock.advance(60)
    assert ids_of(await mail.read()) == [first.id, last.id], "the others are delivered"
    assert mail.dead_letters.reasons == ["expired"], "the expired message is dead-lettered"


async def promise_58_mail_is_delivered_until_it_expires(mail: MailHarness) -> None:
    """A message is delivered if it is taken before its expiry time. A message without such a time never expires."""
    sent = [await mail.send(expires=mail.clock.now() + 3600), await mail.send()]
    mail.clock.advance(3500)
    assert ids_in(await mail.peek()) == ids_of(sent), "no message has expired"
    mail.clock.advance(200)
    assert ids_of(await mail.read()) == [sent[1].id], "only the message without expiry is left"


async def promise_59_mail_expires_behind_a_waiting_reader(mail: MailHarness) -> None:
    """Expiry is checked when a message is taken, not when the mailbox is opened."""
    async with mail.open_inbox() as inbox:
        await mail.send(expires=mail.clock.now() + 60)
        mail.clock.advance(3600)
        await inbox.wait()
        assert inbox.take_nowait() == [], "it expired while it was pending"
    assert mail.dead_letters.reasons == ["expired"], "it is dead-lettered"


async def promise_60_a_clock_that_jumps_back_loses_nothing(mail: MailHarness) -> None:
    """When the clock jumps back, no message is lost, delayed or reordered."""
    sent = [await mail.send(expires=mail.clock.now() + 60)]
    mail.clock.advance(-7200)
    sent += [await mail.send(expires=mail.clock.now() + 60), await mail.send()]
    await mail.restart()
    assert ids_of(await mail.read()) == ids_of(sent), "all of it, in the order of sending"
    assert mail.dead_letters.letters == [], "there are no dead letters"


async def promise_61_mail_for_an_earlier_incarnation_is_dead_lettered(mail: MailHarness) -> None:
    """A message for one incarnation (start) of an agent becomes a dead letter if another incarnation reads it."""
    await mail.send(start=1)
    mail.roster.join("bob")
    assert await mail.read() == [], "incarnation 2 does not get it"
    assert mail.dead_letters.reasons == ["stale_incarnation"], "it is dead-lettered"


async def promise_62_mail_for_this_incarnation_is_delivered(mail: MailHarness) -> None:
    """A message is delivered if it is for the current incarnation (start) of the recipient, or for any incarnation."""
    mail.roster.join("bob")
    sent = [await mail.send(start=2), await mail.send()]
    assert ids_of(await mail.read()) == ids_of(sent), "both are delivered"


@promise(need="macs")
async def promise_63_forged_mail_is_dead_lettered(mail: MailHarness) -> None:
    """A message becomes a dead letter if it has no MAC or its MAC was not made with the key of its sender."""
    envelope = mail.new_message()
    forgeries: list[str | None] = [None, "", "0" * 32, "\u00e9", mail.new_message(sender="carol").mac]
    for mac in forgeries:
        await mail.transport.send(attrs.evolve(envelope, id=new_message_id(), mac=mac))
    sent = await mail.send()
    assert ids_of(await mail.read()) == [sent.id], "only what is signed is delivered"
    assert mail.dead_letters.reasons == ["bad_mac"] * len(forgeries), "the others are dead-lettered"


@promise(need="macs")
async def promise_64_mail_without_a_key_is_dead_lettered(mail: MailHarness) -> None:
    """A message becomes a dead letter if the key of its sender is unknown."""
    mail.keys.lost.add("alice")
    await mail.send(sender="alice")
    sent = await mail.send(sender="carol")
    assert ids_of(await mail.read()) == [sent.id], "only carol's message is delivered"
    assert mail.dead_letters.reasons == ["bad_mac"], "alice's message is dead-lettered"


@promise(need="macs")
async def promise_65_a_mac_covers_every_field(mail: MailHarness) -> None:
    """A message becomes a dead letter if any of its fields was changed after signing."""
    signed = mail.new_message()
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
        await mail.transport.send(envelope)
    assert await mail.read("bob") + await mail.read("carol") == [], "no changed message is delivered"
    assert mail.dead_letters.reasons == ["bad_mac"] * len(changed), "all are dead-lettered"


@promise(need="macs")
async def promise_66_a_forgery_does_not_replace_a_message(mail: MailHarness) -> None:
    """A forged message under the id of a real one does not prevent delivery of the real one."""
    real = mail.new_message()
    await mail.transport.send(attrs.evolve(real, body="forged"))
    await mail.transport.send(real)
    assert await mail.read() == [real], "the real one is delivered"
    assert mail.dead_letters.reasons == ["bad_mac"], "the forged one is dead-lettered"


async def promise_67_a_dead_letter_is_complete(mail: MailHarness) -> None:
    """A dead letter has its reason, the name of its mailbox, its time, the message, and the bytes as stored."""
    sent = await mail.send("carol", expires=mail.clock.now() + 1, body="too late", summary="late")
    mail.clock.advance(60)
    await mail.read("carol")
    (letter,) = mail.dead_letters.letters
    assert (letter.reason, letter.mailbox) == ("expired", "carol"), f"{letter}"
    assert letter.detail, "it has a detail text"
    assert abs(letter.at - mail.clock.now()) < 60, "the time is that of the session's clock"
    assert letter.envelope is not None, "the message is there"
    assert (letter.envelope.id, letter.envelope.body) == (sent.id, "too late"), f"{letter.envelope}"
    assert Envelope.from_bytes(letter.raw) == letter.envelope, "and so are its bytes"


async def promise_68_a_dead_letter_is_stored_once(mail: MailHarness) -> None:
    """An undeliverable message is stored as a dead letter once. It then counts as acknowledged, not as pending."""
    await mail.send(expires=mail.clock.now() - 1)
    assert await mail.read() == [], "it is not delivered"
    await mail.restart()
    assert await mail.read() == [], "also not after a restart"
    assert mail.dead_letters.reasons == ["expired"], "it is dead-lettered once"
    assert mail.transport.backlog("bob").messages == 0, "it is not pending"


async def promise_69_a_dead_letter_that_cannot_be_stored_is_not_lost(mail: MailHarness) -> None:
    """If a dead letter cannot be stored, reading raises `MailboxFailed`, and the message stays in the mailbox."""
    first = await mail.send()
    await mail.send(expires=mail.clock.now() - 1)
    last = await mail.send()
    mail.dead_letters.is_full = True
    taken = []
    async with mail.open_inbox() as inbox:

        async def take_twice() -> None:
            for _ in range(2):
                taken.extend(ids_in(inbox.take_nowait()))

        failure = await expect_error(MailboxFailed, take_twice())
        assert failure.name == "bob", "the error names the mailbox"
        mail.dead_letters.is_full = False
        taken.extend(ids_in(inbox.take_nowait()))
    assert taken == [first.id, last.id], "deliverable messages are delivered"
    assert mail.dead_letters.reasons == ["expired"], "the expired message is dead-lettered later"


@promise(need="tampering")
async def promise_70_garbage_becomes_a_dead_letter(mail: MailHarness) -> None:
    """Bytes that are not a message become a dead letter unchanged, and later messages are delivered."""
    first = await mail.send()
    mail.tampering.write_bytes("bob", b"\n{garbage \xff\x00}\n")
    last = await mail.send()
    assert ids_of(await mail.read()) == [first.id, last.id], "complete messages are delivered"
    assert set(mail.dead_letters.reasons) == {"corrupt"}, "the garbage is dead-lettered"
    assert all(letter.mailbox == "bob" and letter.envelope is None for letter in mail.dead_letters.letters)
    assert b"garbage" in b"".join(letter.raw for letter in mail.dead_letters.letters), "with its bytes"


@promise(need="tampering")
async def promise_71_a_torn_message_does_not_hide_the_next(mail: MailHarness) -> None:
    """A partly written message becomes a dead letter, and the next message is delivered."""
    mail.tampering.write_bytes("bob", b"\n" + mail.new_message(body="torn").to_bytes()[:-20])
    await mail.restart()
    sent = await mail.send()
    assert ids_of(await mail.read()) == [sent.id], "the complete one is delivered"
    assert mail.dead_letters.reasons == ["corrupt"], "the torn one is dead-lettered"
    await mail.restart()
    assert await mail.read() == [], "neither is delivered again"


@promise(need="tampering")
async def promise_72_a_message_in_a_wrong_mailbox_is_dead_lettered(mail: MailHarness) -> None:
    """A message that lies in a mailbox of another name than its recipient's becomes a dead letter."""
    await mail.send()
    mail.tampering.write_record("bob", mail.new_message("carol"))
    sent = await mail.send()
    read = await mail.read()
    assert (len(read), read[-1].id) == (2, sent.id), "only messages for bob are delivered"
    assert len(mail.dead_letters.letters) == 1, "the other is dead-lettered"


@promise(need="tampering")
async def promise_73_a_forged_record_is_dead_lettered(mail: MailHarness) -> None:
    """A record that was written into a mailbox without the key of its sender becomes a dead letter."""
    await mail.send()
    mail.tampering.write_record("bob", attrs.evolve(mail.new_message(), mac="0" * 32))
    sent = await mail.send()
    read = await mail.read()
    assert (len(read), read[-1].id) == (2, sent.id), "only signed messages are delivered"
    assert mail.dead_letters.reasons == ["bad_mac"], "the forged record is dead-lettered"

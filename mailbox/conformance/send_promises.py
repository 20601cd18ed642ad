"""Promises of mail transports about sending: receipts, delivery once to the right recipient, and any text."""

import sys

import attrs
import trio

from coterie.mailbox.conformance.harness import MEMBERS, MailHarness, expect_error, ids_in, ids_of, promise
from coterie.mailbox.contract import Receipt
from coterie.mailbox.envelope import Envelope, new_message_id
from coterie.mailbox.errors import MailboxError, UnknownRecipient


async def promise_01_a_receipt_describes_the_stored_message(mail: MailHarness) -> None:
    """A receipt has the id and the recipient of the message, and the time of storing."""
    mail.clock.advance(3600)
    before, envelope = mail.clock.now(), mail.new_message()
    receipt = await mail.transport.send(envelope)
    assert (receipt.id, receipt.recipient) == (envelope.id, "bob"), "a receipt is for the message that was sent"
    assert before <= receipt.stored <= mail.clock.now(), "the time of storing is read from the session's clock"


async def promise_02_a_receipt_means_stored(mail: MailHarness) -> None:
    """A message whose sender got a receipt survives a restart, whether or not the mailbox has a reader."""
    sent = await mail.send_many(3)
    await mail.restart()
    sent += await mail.send_many(2)
    await mail.restart()
    assert ids_of(await mail.read()) == ids_of(sent), "receipted mail is there after a restart"


async def promise_03_without_a_receipt_nothing_is_stored(mail: MailHarness) -> None:
    """A message to an unknown name is not stored. It is never delivered, even if a member of that name joins later."""
    await expect_error(UnknownRecipient, mail.send("dave"))
    mail.roster.join("dave")
    assert mail.transport.backlog("dave").messages == 0, "a refused message is not pending"
    assert await mail.read("dave") == [], "refused mail is not delivered"


async def promise_04_a_cancelled_send_is_whole_or_absent(mail: MailHarness) -> None:
    """A cancelled send stores the message whole or not at all, and affects no other message."""
    envelopes = [mail.new_message() for _ in range(20)]
    receipts: list[Receipt] = []

    async def send(envelope: Envelope, scope: trio.CancelScope) -> None:
        with scope:
            receipts.append(await mail.transport.send(envelope))

    async with trio.open_nursery() as nursery:
        scopes = [trio.CancelScope() for _ in envelopes]
        for envelope, scope in zip(envelopes, scopes, strict=True):
            nursery.start_soon(send, envelope, scope)
        scopes[0].cancel()
        await trio.lowlevel.checkpoint()
        for scope in scopes[1::2]:
            scope.cancel()
    read = await mail.read()
    assert all(envelope in envelopes for envelope in read), "what was stored is whole"
    assert len(set(ids_of(read))) == len(read), "nothing is stored twice"
    assert {receipt.id for receipt in receipts} <= set(ids_of(read)), "what has a receipt is stored"
    assert mail.dead_letters.letters == [], "no partial message is stored"


async def promise_05_a_message_sent_twice_is_delivered_once(mail: MailHarness) -> None:
    """A message that is sent again under the same id, because its sender got no receipt, is delivered once."""
    envelope = await mail.send()
    other = await mail.send()
    await mail.transport.send(envelope)
    assert ids_of(await mail.read()) == [envelope.id, other.id], "a copy is dropped, in the place of the first"
    assert mail.transport.backlog("bob").messages == 0, "a copy is not pending"


async def promise_06_a_copy_of_acknowledged_mail_is_dropped(mail: MailHarness) -> None:
    """A reader that took a message does not get a copy with the same id, even after acknowledging the message."""
    async with mail.open_inbox() as inbox:
        envelope = await mail.send()
        assert len(inbox.take_nowait()) == 1, "the first is delivered"
        await mail.transport.send(envelope)
        assert inbox.take_nowait() == [], "a copy of what was taken is dropped"
        await inbox.acknowledge([envelope.id])
        await mail.transport.send(envelope)
        assert inbox.take_nowait() == [], "a copy of what was acknowledged is dropped"
    assert mail.dead_letters.letters == [], "a copy is no dead letter"


async def promise_07_every_field_arrives(mail: MailHarness) -> None:
    """All fields of a message arrive unchanged, including summary, reply, group, trace context and expiry."""
    sent = await mail.send(
        body="Look at this.",
        summary="a thing to look at",
        in_reply_to=new_message_id(),
        group="g-1",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        expires=mail.clock.now() + 60.5,
    )
    (read,) = await mail.read()
    # A hop in between may sign again, and sets the session of the sender.
    same = attrs.evolve(read, mac=sent.mac, sender=attrs.evolve(read.sender, session=sent.sender.session))
    assert same == sent, f"{read} is not {sent}"


@promise(need="macs")
async def promise_08_what_arrives_is_what_was_signed(mail: MailHarness) -> None:
    """The reader gets exactly the bytes that the sender signed."""
    sent = await mail.send(body='{"a":  1}', created=mail.clock.now() + 0.1)
    (read,) = await mail.read()
    assert read.to_bytes() == sent.to_bytes(), "the bytes are the same"


async def promise_09_mail_reaches_only_its_recipient(mail: MailHarness) -> None:
    """A message is delivered to the name it was sent to, and to no other."""
    sent = {name: await mail.send(name, sender="carol") for name in MEMBERS for _ in range(2)}
    for name in MEMBERS:
        read = await mail.read(name)
        assert {envelope.recipient.name for envelope in read} == {name}, f"{name} gets mail for {name}"
        assert read[-1].id == sent[name].id, f"all mail for {name} is there"


async def promise_10_sessions_do_not_mix(mail: MailHarness) -> None:
    """Two sessions with members of the same names do not get each other's mail."""
    async with mail.open_other_session() as other:
        here, there = await mail.send(), await other.send()
        assert ids_of(await other.read()) == [there.id], "the other session gets only its own mail"
        assert ids_of(await mail.read()) == [here.id], "this session gets only its own mail"


async def promise_11_a_broadcast_is_one_message_per_recipient(mail: MailHarness) -> None:
    """The messages of a broadcast have the same group id. Each is delivered and acknowledged separately."""
    for name in ("bob", "carol"):
        await mail.send(name, group="all-hands")
    assert [envelope.group for envelope in await mail.read("bob")] == ["all-hands"], "bob gets a message"
    (delivery,) = await mail.peek("carol")
    assert delivery.envelope.group == "all-hands", "carol's message is pending although bob acknowledged his"


async def promise_12_mail_waits_for_a_reader(mail: MailHarness) -> None:
    """A member can get mail before its first reader opens the mailbox, and can send mail to itself."""
    mail.roster.join("dave")
    sent = [await mail.send("dave", sender="alice"), await mail.send("dave", sender="dave")]
    deliveries = await mail.peek("dave")
    assert ids_in(deliveries) == ids_of(sent), "both messages are pending"


LARGEST = 1000 * 1000
PIECE = 100_000
SURROGATES = range(0xD800, 0xE000)
CONTROL = (
    "\n",
    "\r\n",
    "a\nb\n\nc\n",
    "\0",
    "\0\n\0",
    "\x1b[2J\x07\x7f",
    "\u2028\u2029\x85\x0b\x0c",
    "\ufeff",
    '","crc":"00000000"}\n{"v":1',
    '\n{"v":1,"crc":"00000000"}\n',
    "\\",
    '"',
    "\\ud83d",
)
"""Bodies that could break a line, a record or a terminal."""


async def promise_52_a_body_may_be_empty(mail: MailHarness) -> None:
    """A message with an empty body is accepted and delivered."""
    await mail.send(body="")
    assert [envelope.body for envelope in await mail.read()] == [""], "it arrives"


async def promise_53_a_body_may_be_long(mail: MailHarness) -> None:
    """A body of a million bytes arrives, and so do the messages before and after it."""
    bodies = ["before", "x" * LARGEST, "after"]
    for body in bodies:
        await mail.send(body=body)
    await mail.restart()
    assert [envelope.body for envelope in await mail.read()] == bodies, "all three arrive whole"


async def promise_54_control_characters_are_text(mail: MailHarness) -> None:
    """Newlines, NUL, escapes and text that imitates a stored record arrive unchanged, one message for each body."""
    for body in CONTROL:
        await mail.send(body=body, summary=body)
    await mail.restart()
    read = await mail.read()
    assert [envelope.body for envelope in read] == list(CONTROL), "every body as it was"
    assert [envelope.summary for envelope in read] == list(CONTROL), "and every summary"


async def promise_55_all_of_unicode_is_text(mail: MailHarness) -> None:
    """Every Unicode character arrives unchanged. No text is normalised."""
    text = "".join(map(chr, (*range(SURROGATES.start), *range(SURROGATES.stop, sys.maxunicode + 1))))
    bodies = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    bodies += ["e\u0301", "\u00e9"]
    for body in bodies:
        await mail.send(body=body)
    assert [envelope.body for envelope in await mail.read()] == bodies, "code point by code point"


async def promise_56_a_lone_surrogate_is_refused(mail: MailHarness) -> None:
    """A body with a lone surrogate, which cannot be encoded, is rejected, and no part of it is stored."""
    whole = mail.new_message()
    half = attrs.evolve(whole, body="caf\udce9")
    # Signing encodes the body already, so the error usually comes before sending.
    await expect_error((MailboxError, UnicodeEncodeError), mail.transport.send(half))
    await mail.transport.send(whole)
    assert [envelope.body for envelope in await mail.read()] == [whole.body], "only what is text"

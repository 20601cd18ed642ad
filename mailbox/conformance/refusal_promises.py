"""Promises of mail transports about rejected mail: the sender gets the reason, and nothing is stored."""

from coterie.mailbox.conformance.harness import MailHarness, expect_error, ids_of, promise
from coterie.mailbox.contract import MailLimits
from coterie.mailbox.errors import MailboxFull, MessageTooLarge, NameInvalid, RecipientEnded, UnknownRecipient

SMALL = 2000
IMPOSSIBLE = (
    "",
    ".",
    "..",
    "../bob",
    "bob/../carol",
    "/bob",
    "bob/",
    "bob\0",
    "bob\n",
    " bob",
    "bob ",
    "-bob",
    "*",
    "b" * 300,
    "b\u043eb",  # the Cyrillic o
    "bob\u200b",
    "\uff42ob",
    "dead",
)
"""Names that no agent can have. Only the last one has a valid form; it is reserved for a directory."""


async def promise_41_an_unknown_name_gets_suggestions(mail: MailHarness) -> None:
    """A message to an unknown name is rejected. The error has similar names and all known names."""
    refusal = await expect_error(UnknownRecipient, mail.send("alise"))
    assert (refusal.name, refusal.nearest[:1]) == ("alise", ("alice",)), f"{refusal}"
    assert set(refusal.known) == {"alice", "bob", "carol"}, f"{refusal}"


async def promise_42_case_counts(mail: MailHarness) -> None:
    """Names are case-sensitive. A name in the wrong case is rejected, and the error suggests the right one."""
    refusal = await expect_error(UnknownRecipient, mail.send("BOB"))
    assert refusal.nearest[:1] == ("bob",), f"{refusal}"
    assert await mail.peek() == [], "bob does not get it"


async def promise_43_impossible_names_are_refused(mail: MailHarness) -> None:
    """A message to an invalid name is rejected, and no member gets it.

    Invalid are names with slashes, dots, NUL, spaces or look-alike letters, and very long names.
    """
    for name in IMPOSSIBLE:
        await expect_error((UnknownRecipient, NameInvalid), mail.send(name))
    for name in mail.roster.members():
        assert await mail.peek(name) == [], f"{name} does not get it"


async def promise_44_an_ended_recipient_takes_no_mail(mail: MailHarness) -> None:
    """Mail to an ended recipient is rejected with `RecipientEnded`. Earlier mail can still be read."""
    sent = await mail.send()
    mail.roster.set_state("bob", "ended")
    refusal = await expect_error(RecipientEnded, mail.send())
    assert (refusal.name, refusal.incarnation) == ("bob", 1), f"{refusal}"
    assert ids_of(await mail.read()) == [sent.id], "only what came before"


async def promise_45_a_new_incarnation_takes_mail(mail: MailHarness) -> None:
    """An ended recipient that is started again accepts mail. It also gets mail left unread by its last incarnation."""
    first = await mail.send()
    mail.roster.set_state("bob", "ended")
    mail.roster.join("bob")
    second = await mail.send()
    assert ids_of(await mail.read()) == [first.id, second.id], "mail for any start"


async def promise_46_an_idle_recipient_takes_mail(mail: MailHarness) -> None:
    """An idle recipient accepts mail."""
    mail.roster.set_state("bob", "idle")
    sent = await mail.send()
    assert ids_of(await mail.read()) == [sent.id], "it is there"


@promise(limits=MailLimits(messages=3))
async def promise_47_pending_messages_are_limited(mail: MailHarness) -> None:
    """A mailbox at its limit of messages rejects mail. The error has the number of pending messages and the limit."""
    sent = await mail.send_many(3)
    refusal = await expect_error(MailboxFull, mail.send())
    assert (refusal.name, refusal.waiting, refusal.limit, refusal.unit) == ("bob", 3, 3, "messages"), f"{refusal}"
    await mail.send("carol")
    await mail.restart()
    await expect_error(MailboxFull, mail.send())
    assert ids_of(await mail.read()) == ids_of(sent), "the refused message is not stored"


@promise(limits=MailLimits(bytes=10 * SMALL))
async def promise_48_pending_bytes_are_limited(mail: MailHarness) -> None:
    """A mailbox at its limit of bytes rejects mail until messages are acknowledged.

    The error has the number of pending bytes and the limit.
    """
    sent = [await mail.send(body=f"{number}" + "x" * 2 * SMALL) for number in range(4)]
    refusal = await expect_error(MailboxFull, mail.send(body="y" * 2 * SMALL))
    assert (refusal.name, refusal.limit, refusal.unit) == ("bob", 10 * SMALL, "bytes"), f"{refusal}"
    assert 8 * SMALL < refusal.waiting <= 10 * SMALL, f"{refusal}"
    await mail.send("carol")
    assert ids_of(await mail.read()) == ids_of(sent), "the refused message is not stored"
    await mail.send(body="y" * 2 * SMALL)


@promise(limits=MailLimits(messages=2))
async def promise_49_acknowledging_makes_room(mail: MailHarness) -> None:
    """A full mailbox accepts mail again after an acknowledgement, but not after messages were only taken."""
    first, second = await mail.send_many(2)
    async with mail.open_inbox() as inbox:
        inbox.take_nowait()
        await expect_error(MailboxFull, mail.send())
        await inbox.acknowledge([second.id])
        third = await mail.send()
        await expect_error(MailboxFull, mail.send())
    assert ids_of(await mail.read()) == [first.id, third.id], "there was room for one message"


@promise(limits=MailLimits(message_bytes=SMALL))
async def promise_50_message_size_is_limited(mail: MailHarness) -> None:
    """A message of exactly the size limit is accepted. A message with one more byte is rejected."""
    room = SMALL - len(mail.new_message(body="", sequence=1, created=1.5).to_bytes())
    largest, too_large = (mail.new_message(body="x" * size, sequence=1, created=1.5) for size in (room, room + 1))
    assert [len(e.to_bytes()) for e in (largest, too_large)] == [SMALL, SMALL + 1], "sizes at the limit"
    await mail.transport.send(largest)
    refusal = await expect_error(MessageTooLarge, mail.transport.send(too_large))
    assert (refusal.size, refusal.limit) == (SMALL + 1, SMALL), f"{refusal}"
    assert ids_of(await mail.read()) == [largest.id], "only the one that fits"


@promise(limits=MailLimits(message_bytes=SMALL))
async def promise_51_size_is_counted_in_bytes(mail: MailHarness) -> None:
    """The size of a message is the number of its encoded bytes, not of its characters."""
    await expect_error(MessageTooLarge, mail.transport.send(mail.new_message(body="\U0001f4ee" * (SMALL // 3))))
    assert await mail.peek() == [], "nothing of it is stored"

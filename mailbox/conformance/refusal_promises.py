"""Promises about refused mail: the sender gets the reason, and nothing is stored."""

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
"""Names that nobody has; the last one could be somebody's."""


@promise()
async def promise_41_an_unknown_name_gets_the_nearest(post: MailHarness) -> None:
    """A name that nobody has is refused, with the nearest names and all that there are."""
    refusal = await expect_error(UnknownRecipient, post.send("alise"))
    assert (refusal.name, refusal.nearest[:1]) == ("alise", ("alice",)), f"{refusal}"
    assert set(refusal.known) == {"alice", "bob", "carol"}, f"{refusal}"


@promise()
async def promise_42_case_counts(post: MailHarness) -> None:
    """A name in another case is another name: it is refused, and the right one is given."""
    refusal = await expect_error(UnknownRecipient, post.send("BOB"))
    assert refusal.nearest[:1] == ("bob",), f"{refusal}"
    assert await post.peek() == [], "bob does not get it"


@promise()
async def promise_43_impossible_names_are_refused(post: MailHarness) -> None:
    """Names with slashes, dots, NUL, spaces or look-alike letters, and endless ones, are refused as any other."""
    for name in IMPOSSIBLE:
        await expect_error((UnknownRecipient, NameInvalid), post.send(name))
    for name in post.roster.members():
        assert await post.peek(name) == [], f"{name} does not get it"


@promise()
async def promise_44_an_ended_recipient_takes_no_mail(post: MailHarness) -> None:
    """A recipient that has ended is refused as such; what it had before can still be read."""
    sent = await post.send()
    post.roster.set_state("bob", "ended")
    refusal = await expect_error(RecipientEnded, post.send())
    assert (refusal.name, refusal.incarnation) == ("bob", 1), f"{refusal}"
    assert ids_of(await post.read()) == [sent.id], "only what came before"


@promise()
async def promise_45_a_new_start_takes_mail(post: MailHarness) -> None:
    """When an ended recipient is started again it takes mail, and gets what its last start left."""
    first = await post.send()
    post.roster.set_state("bob", "ended")
    post.roster.join("bob")
    second = await post.send()
    assert ids_of(await post.read()) == [first.id, second.id], "mail for any start"


@promise()
async def promise_46_an_idle_recipient_takes_mail(post: MailHarness) -> None:
    """A recipient that is idle takes mail as any other."""
    post.roster.set_state("bob", "idle")
    sent = await post.send()
    assert ids_of(await post.read()) == [sent.id], "it is there"


@promise(limits=MailLimits(messages=3))
async def promise_47_a_mailbox_holds_so_many_messages(post: MailHarness) -> None:
    """A mailbox with as many messages as it may hold takes no more, and the sender is told the numbers."""
    sent = await post.send_many(3)
    refusal = await expect_error(MailboxFull, post.send())
    assert (refusal.name, refusal.waiting, refusal.limit, refusal.unit) == ("bob", 3, 3, "messages"), f"{refusal}"
    await post.send("carol")
    await post.restart()
    await expect_error(MailboxFull, post.send())
    assert ids_of(await post.read()) == ids_of(sent), "what was refused is not there"


@promise(limits=MailLimits(bytes=10 * SMALL))
async def promise_48_a_mailbox_holds_so_many_bytes(post: MailHarness) -> None:
    """A mailbox takes no more bytes than it may hold until some are acknowledged; the sender is told the numbers."""
    sent = [await post.send(body=f"{number}" + "x" * 2 * SMALL) for number in range(4)]
    refusal = await expect_error(MailboxFull, post.send(body="y" * 2 * SMALL))
    assert (refusal.name, refusal.limit, refusal.unit) == ("bob", 10 * SMALL, "bytes"), f"{refusal}"
    assert 8 * SMALL < refusal.waiting <= 10 * SMALL, f"{refusal}"
    await post.send("carol")
    assert ids_of(await post.read()) == ids_of(sent), "what was refused is not there"
    await post.send(body="y" * 2 * SMALL)


@promise(limits=MailLimits(messages=2))
async def promise_49_acknowledging_makes_room(post: MailHarness) -> None:
    """A full mailbox takes mail again when something was acknowledged, and not when it was only taken."""
    first, second = await post.send_many(2)
    async with post.open_inbox() as inbox:
        inbox.take_nowait()
        await expect_error(MailboxFull, post.send())
        await inbox.acknowledge([second.id])
        third = await post.send()
        await expect_error(MailboxFull, post.send())
    assert ids_of(await post.read()) == [first.id, third.id], "one came in for one that went"


@promise(limits=MailLimits(message_bytes=SMALL))
async def promise_50_a_message_holds_so_many_bytes(post: MailHarness) -> None:
    """A message of exactly as many bytes as one may have is taken; one byte more is refused."""
    room = SMALL - len(post.new_message(body="", sequence=1, created=1.5).to_bytes())
    largest, too_large = (post.new_message(body="x" * size, sequence=1, created=1.5) for size in (room, room + 1))
    assert [len(e.to_bytes()) for e in (largest, too_large)] == [SMALL, SMALL + 1], "sizes at the limit"
    await post.transport.send(largest)
    refusal = await expect_error(MessageTooLarge, post.transport.send(too_large))
    assert (refusal.size, refusal.limit) == (SMALL + 1, SMALL), f"{refusal}"
    assert ids_of(await post.read()) == [largest.id], "only the one that fits"


@promise(limits=MailLimits(message_bytes=SMALL))
async def promise_51_size_is_counted_in_bytes(post: MailHarness) -> None:
    """The size of a message is that of its bytes, not of its characters."""
    await expect_error(MessageTooLarge, post.transport.send(post.new_message(body="\U0001f4ee" * (SMALL // 3))))
    assert await post.peek() == [], "nothing of it is stored"

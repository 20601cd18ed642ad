"""Promises about order."""

from collections import defaultdict

import trio

from coterie.mailbox.conformance.harness import MailHarness, ids_in, ids_of, promise

SENDERS = 12
EACH = 15


@promise()
async def promise_13_order_is_kept(post: MailHarness) -> None:
    """What one sender sends to one recipient is delivered in the order of sending."""
    sent = await post.send_many(50)
    assert ids_of(await post.read()) == ids_of(sent), "in the order of sending"


@promise()
async def promise_14_order_is_kept_among_many_senders(post: MailHarness) -> None:
    """With many senders at once, to several recipients, the order of each pair is kept and nothing is lost."""
    names = [post.roster.join(f"sender-{number}").name for number in range(SENDERS)]

    async def send_all(name: str) -> None:
        for number in range(EACH):
            await post.send(("bob", "carol")[number % 2], sender=name)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(send_all, name)
    for recipient, count in (("bob", (EACH + 1) // 2), ("carol", EACH // 2)):
        sequences: dict[str, list[int]] = defaultdict(list)
        for envelope in await post.read(recipient):
            sequences[envelope.sender.name].append(envelope.sequence)
        assert sorted(sequences) == sorted(names), f"{recipient} hears from everybody"
        for name, numbers in sequences.items():
            assert numbers == list(range(1, count + 1)), f"{name} to {recipient}: {numbers}"


@promise()
async def promise_15_order_is_kept_while_reading(post: MailHarness) -> None:
    """Order holds for a reader that takes and acknowledges while others send."""
    read: list[int] = []

    async def read_all() -> None:
        async with post.open_inbox() as inbox:
            while len(read) < 40:
                await inbox.wait()
                deliveries = inbox.take_nowait(3)
                read.extend(delivery.envelope.sequence for delivery in deliveries)
                await inbox.acknowledge(ids_in(deliveries))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_all)
        await post.send_many(40)
    assert read == list(range(1, 41)), f"{read}"


@promise()
async def promise_16_order_is_that_of_sending(post: MailHarness) -> None:
    """Neither sequence numbers nor times of creation change the order of delivery."""
    now = post.clock.now()
    sent = [await post.send(sequence=n, created=now - n) for n in (7, 3, 3, 9, 1)]
    assert ids_of(await post.read()) == ids_of(sent), "in the order of sending"


@promise()
async def promise_17_order_survives_restarts(post: MailHarness) -> None:
    """What is delivered again comes before what was sent later, in the order of sending."""
    first = await post.send_many(4)
    async with post.open_inbox() as inbox:
        inbox.take_nowait(3)
        await inbox.acknowledge([first[1].id])
    await post.restart()
    later = await post.send_many(2)
    expected = [first[0].id, first[2].id, first[3].id, *ids_of(later)]
    assert ids_of(await post.read()) == expected, "old before new"


@promise()
async def promise_18_a_restarted_sender_is_another(post: MailHarness) -> None:
    """A sender that was started again counts from 1, and is not confused with its first start."""
    first = await post.send_many(3)
    post.roster.join("alice")
    second = await post.send_many(3)
    read = await post.read()
    assert ids_of(read) == ids_of([*first, *second]), "nothing is taken for a copy"
    counted = [(envelope.sender.incarnation, envelope.sequence) for envelope in read]
    assert counted == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)], f"{counted}"


@promise()
async def promise_19_taking_can_be_limited(post: MailHarness) -> None:
    """A reader that takes at most so many gets the oldest, and the rest the next time."""
    sent = ids_of(await post.send_many(5))
    async with post.open_inbox() as inbox:
        assert inbox.take_nowait(0) == [], "none if none is asked for"
        taken = [ids_in(inbox.take_nowait(limit)) for limit in (2, 2, 2, None)]
    assert taken == [sent[:2], sent[2:4], sent[4:], []], f"{taken}"


@promise()
async def promise_20_a_limit_counts_what_is_delivered(post: MailHarness) -> None:
    """Dead mail does not count against a limit, and does not hide what lies behind it."""
    for _ in range(3):
        await post.send(expires=post.clock.now() - 1)
    sent = await post.send_many(2)
    async with post.open_inbox() as inbox:
        assert ids_in(inbox.take_nowait(1)) == [sent[0].id], "the first that lives"

"""Promises of mail transports about the order in which messages are delivered."""

from collections import defaultdict

import trio

from coterie.mailbox.conformance.harness import MailHarness, ids_in, ids_of

SENDERS = 12
EACH = 15


async def promise_13_order_is_kept(mail: MailHarness) -> None:
    """Messages of one sender to one recipient are delivered in the order of sending."""
    sent = await mail.send_many(50)
    assert ids_of(await mail.read()) == ids_of(sent), "in the order of sending"


async def promise_14_order_is_kept_among_many_senders(mail: MailHarness) -> None:
    """Many senders may send to several recipients at once.

    For each pair of sender and recipient the order of sending is kept, and no message is lost.
    """
    names = [mail.roster.join(f"sender-{number}").name for number in range(SENDERS)]

    async def send_all(name: str) -> None:
        for number in range(EACH):
            await mail.send(("bob", "carol")[number % 2], sender=name)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(send_all, name)
    for recipient, count in (("bob", (EACH + 1) // 2), ("carol", EACH // 2)):
        sequences: dict[str, list[int]] = defaultdict(list)
        for envelope in await mail.read(recipient):
            sequences[envelope.sender.name].append(envelope.sequence)
        assert sorted(sequences) == sorted(names), f"{recipient} gets mail from every sender"
        for name, numbers in sequences.items():
            assert numbers == list(range(1, count + 1)), f"{name} to {recipient}: {numbers}"


async def promise_15_order_is_kept_while_reading(mail: MailHarness) -> None:
    """The order of sending is kept if the reader takes and acknowledges messages while more are sent."""
    read: list[int] = []

    async def read_all() -> None:
        async with mail.open_inbox() as inbox:
            while len(read) < 40:
                await inbox.wait()
                deliveries = inbox.take_nowait(3)
                read.extend(delivery.envelope.sequence for delivery in deliveries)
                await inbox.acknowledge(ids_in(deliveries))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_all)
        await mail.send_many(40)
    assert read == list(range(1, 41)), f"{read}"


async def promise_16_order_is_that_of_sending(mail: MailHarness) -> None:
    """Messages are delivered in the order of sending, whatever their sequence numbers and creation times are."""
    now = mail.clock.now()
    sent = [await mail.send(sequence=n, created=now - n) for n in (7, 3, 3, 9, 1)]
    assert ids_of(await mail.read()) == ids_of(sent), "in the order of sending"


async def promise_17_order_survives_restarts(mail: MailHarness) -> None:
    """After a restart, unacknowledged messages are delivered in the order of sending, before messages sent later."""
    first = await mail.send_many(4)
    async with mail.open_inbox() as inbox:
        inbox.take_nowait(3)
        await inbox.acknowledge([first[1].id])
    await mail.restart()
    later = await mail.send_many(2)
    expected = [first[0].id, first[2].id, first[3].id, *ids_of(later)]
    assert ids_of(await mail.read()) == expected, "old before new"


async def promise_18_a_restarted_sender_counts_anew(mail: MailHarness) -> None:
    """A restarted sender counts its messages from 1 again. They are not mistaken for copies of earlier messages."""
    first = await mail.send_many(3)
    mail.roster.join("alice")
    second = await mail.send_many(3)
    read = await mail.read()
    assert ids_of(read) == ids_of([*first, *second]), "nothing is taken for a copy"
    counted = [(envelope.sender.incarnation, envelope.sequence) for envelope in read]
    assert counted == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)], f"{counted}"


async def promise_19_taking_can_be_limited(mail: MailHarness) -> None:
    """A reader that limits the number of messages to take gets the oldest first, and the rest at later calls."""
    sent = ids_of(await mail.send_many(5))
    async with mail.open_inbox() as inbox:
        assert inbox.take_nowait(0) == [], "none if none is asked for"
        taken = [ids_in(inbox.take_nowait(limit)) for limit in (2, 2, 2, None)]
    assert taken == [sent[:2], sent[2:4], sent[4:], []], f"{taken}"


async def promise_20_a_limit_counts_delivered_messages(mail: MailHarness) -> None:
    """A limit counts only deliverable messages. Undeliverable messages are passed over without ending the call."""
    for _ in range(3):
        await mail.send(expires=mail.clock.now() - 1)
    sent = await mail.send_many(2)
    async with mail.open_inbox() as inbox:
        assert ids_in(inbox.take_nowait(1)) == [sent[0].id], "the first deliverable message"

"""Cost of a message while others are pending."""

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from statistics import median

import attrs

from benchmarks.mail_peers.peer import Box, Mailboxes, ReceivingEnd, SendingEnd
from benchmarks.mail_runs import message, run_roles, send_result

BACKLOGS = (100, 100_000)
EXCHANGING = 1.5
"""Seconds of exchanging messages over a backlog."""
EXCHANGED = 64
"""Number of messages that are sent and then received in one batch; fewer if that takes too long."""


@attrs.frozen(kw_only=True)
class Cost:
    """Cost of a message while others are pending."""

    waiting: int
    sending: float
    """Seconds to send one message."""
    receiving: float
    """Seconds to receive and acknowledge one message."""

    @property
    def both(self) -> float:
        """Seconds from sender to reader."""
        return self.sending + self.receiving


def measure_costs(post: Mailboxes) -> list[Cost]:
    """Measure the cost of a message over each of the `BACKLOGS`; empty if the peer keeps none."""
    costs: list[Cost] = run_roles(_cost, [], post)
    return costs


async def _cost(post: Mailboxes, _barrier: Barrier, _number: int, told: Connection | None) -> None:
    boxes: tuple[Box, ...] = ("left", "right")
    waiting = [
        await post.fill(box, [message(0, number) for number in range(backlog)])
        for box, backlog in zip(boxes, BACKLOGS, strict=True)
    ]
    lanes: list[_Lane] = []
    async with AsyncExitStack() as stack:
        if all(waiting):
            for box in boxes:
                receiver = await stack.enter_async_context(post.open_receiver(box))
                lanes.append(_Lane(await stack.enter_async_context(post.open_sender(box, 0)), receiver))
            await _exchange(lanes)
    send_result(told, [lane.cost(count) for lane, count in zip(lanes, waiting, strict=False)])


async def _exchange(lanes: Sequence["_Lane"]) -> None:
    """Measure *lanes* in turn, so that a slow period of the machine affects all of them."""
    for lane in lanes:
        await lane.go(1)
        lane.forget()
    ends = time.perf_counter() + EXCHANGING
    while not lanes[0].sending or time.perf_counter() < ends:
        for lane in lanes:
            await lane.go(EXCHANGED)


@attrs.define(eq=False)
class _Lane:
    """A mailbox with a constant backlog: as many messages are received as are sent."""

    sender: SendingEnd
    receiver: ReceivingEnd
    sending: list[float] = attrs.field(factory=list)
    """Seconds per message of each batch."""
    receiving: list[float] = attrs.field(factory=list)

    async def go(self, count: int) -> None:
        """Send *count* messages, or fewer if that takes too long, and receive as many."""
        sent, began = 0, time.perf_counter()
        while not sent or (sent < count and time.perf_counter() - began < EXCHANGING / 10):
            await self.sender.send(message(0, sent))
            sent += 1
        self.sending.append((time.perf_counter() - began) / sent)
        received, began = 0, time.perf_counter()
        while received < sent:
            received += len(await self.receiver.receive(sent - received))
            await self.receiver.acknowledge()
        self.receiving.append((time.perf_counter() - began) / sent)

    def forget(self) -> None:
        """Start counting; the first batch reads much data that is not read again."""
        self.sending.clear()
        self.receiving.clear()

    def cost(self, waiting: int) -> Cost:
        """Return the median of all batches."""
        return Cost(waiting=waiting, sending=median(self.sending), receiving=median(self.receiving))

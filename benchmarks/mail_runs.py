"""Throughput and latency of ways to pass messages between processes.

Every writer and reader is a process, forked from a warm one.

A disk interrupts one CPU, and a synced write of a process on another CPU may take 1.5 times as long. So a single writer
and its reader exchange their CPUs, for every peer alike.
"""

import multiprocessing
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

import attrs
import trio

from benchmarks.mail_peers.peer import Mailboxes

SENDING = 0.5
"""Seconds for which writers send; the reader is timed until it has acknowledged all messages."""
PINGING = 0.4
UNCOUNTED_PINGS = 20
BODY_BYTES = 1024
LIMIT = 120.0
"""Seconds after which a run has failed."""

_END = "end"
_PADDING = "x" * BODY_BYTES

Placement = int | None
"""Offset by which processes are moved to other CPUs; None leaves the placement to the kernel."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


@attrs.frozen(kw_only=True)
class Flow:
    """Result of a run."""

    rate: float
    """Messages per second, from the first send to the last acknowledgement."""
    disordered: int
    """Messages received out of the order of their writer."""


def placements(writers: int) -> Sequence[Placement]:
    """Placements to measure with this number of writers; many writers use all CPUs anyway."""
    return range(2) if writers == 1 and len(os.sched_getaffinity(0)) > 1 else [None]


def measure_flow(post: Mailboxes, writers: int, placement: Placement = None) -> Flow:
    """Let *writers* send 1 KB messages to one reader, each as fast as it gets receipts."""
    flow: Flow = run_roles(_read, [_write] * writers, post, placement)
    return flow


def measure_latency(post: Mailboxes) -> list[float]:
    """Return the sorted seconds from one process to another: half of each round trip.

    The reader acknowledges a message after it has replied, so that the measured time ends with the arrival of the
    reply.
    """
    latencies: list[float] = run_roles(_ping, [_pong], post)
    return sorted(latencies[UNCOUNTED_PINGS:])


Role = Callable[[Mailboxes, Barrier, int, Connection | None], Awaitable[None]]
"""Role of a process: gets the peer, a barrier, its number, and a queue for its results."""


def run_roles(first: Role, others: Sequence[Role], post: Mailboxes, placement: Placement = None) -> Any:
    """Run each role in a process and return the result of the *first*."""
    heard, told = _context.Pipe(duplex=False)
    barrier = _context.Barrier(len(others) + 1)
    places: Sequence[int | None] = [None] * (len(others) + 1)
    if placement is not None:
        processors = sorted(os.sched_getaffinity(0))[: len(places)]
        places = processors[placement:] + processors[:placement]
    roles = [
        _context.Process(target=_run_role, args=(places[n], role, post, barrier, n)) for n, role in enumerate(others)
    ]
    roles.append(_context.Process(target=_run_role, args=(places[-1], first, post, barrier, -1, told)))
    with heard, _running(roles):
        told.close()
        if not heard.poll(LIMIT):
            raise TimeoutError(f"{first.__name__} took more than {LIMIT:.0f} seconds")
        return heard.recv()


@contextmanager
def _running(processes: Sequence[Any]) -> Iterator[None]:
    for process in processes:
        process.start()
    try:
        yield
        for process in processes:
            process.join(LIMIT)
    finally:
        for process in processes:
            process.kill()
            process.join()
            process.close()


def _run_role(
    processor: int | None, role: Role, post: Mailboxes, barrier: Barrier, number: int, told: Connection | None = None
) -> None:
    if processor is not None:
        os.sched_setaffinity(0, {processor})
    trio.run(role, post, barrier, number, told)


def message(writer: int, number: int) -> str:
    """Build a message of 1 KB with its number."""
    return f"{writer} {number} {_PADDING}"[:BODY_BYTES]


async def _write(post: Mailboxes, barrier: Barrier, writer: int, _told: Connection | None) -> None:
    barrier.wait(LIMIT)
    async with post.open_sender("right", writer) as sender:
        barrier.wait(LIMIT)
        number, ends = 0, time.perf_counter() + SENDING
        while time.perf_counter() < ends:
            await sender.send(message(writer, number))
            number += 1
        await sender.send(f"{writer} {_END} {number}")


@attrs.define(eq=False)
class _Tally:
    writers: int
    received: int = 0
    disordered: int = 0
    _sent: list[int] = attrs.field(factory=list)
    _next: dict[str, int] = attrs.field(factory=dict)

    @property
    def is_complete(self) -> bool:
        return len(self._sent) == self.writers and self.received >= sum(self._sent)

    def count(self, body: str) -> None:
        writer, number, rest = body.split(" ", 2)
        if number == _END:
            self._sent.append(int(rest))
            return
        self.received += 1
        self.disordered += int(number) != self._next.get(writer, 0)
        self._next[writer] = int(number) + 1


async def _read(post: Mailboxes, barrier: Barrier, _number: int, told: Connection | None) -> None:
    tally = _Tally(barrier.parties - 1)
    async with post.open_receiver("right") as receiver:
        barrier.wait(LIMIT)
        barrier.wait(LIMIT)
        began = time.perf_counter()
        while not tally.is_complete:
            for body in await receiver.receive():
                tally.count(body)
            await receiver.acknowledge()
        seconds = time.perf_counter() - began
    send_result(told, Flow(rate=tally.received / seconds, disordered=tally.disordered))


async def _ping(post: Mailboxes, barrier: Barrier, _number: int, told: Connection | None) -> None:
    latencies: list[float] = []
    async with post.open_receiver("left") as receiver:
        barrier.wait(LIMIT)
        async with post.open_sender("right", 0) as sender:
            ends = time.perf_counter() + PINGING
            # A slow peer must also get beyond the uncounted messages.
            while time.perf_counter() < ends or len(latencies) <= UNCOUNTED_PINGS:
                began = time.perf_counter()
                await sender.send(message(0, len(latencies)))
                await receiver.receive()
                latencies.append((time.perf_counter() - began) / 2)
                await receiver.acknowledge()
            await sender.send(_END)
    send_result(told, latencies)


async def _pong(post: Mailboxes, barrier: Barrier, _number: int, _told: Connection | None) -> None:
    async with post.open_receiver("right") as receiver:
        barrier.wait(LIMIT)
        async with post.open_sender("left", 1) as sender:
            while _END not in (bodies := await receiver.receive()):
                for body in bodies:
                    await sender.send(body)
                await receiver.acknowledge()


def send_result(told: Connection | None, found: object) -> None:
    """Send the result of the first role."""
    assert told is not None
    told.send(found)

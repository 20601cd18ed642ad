"""Upper limits: a pipe and a socket that store nothing."""

import multiprocessing
import queue
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from multiprocessing.queues import Queue
from pathlib import Path

import attrs

from benchmarks.mail_peers.peer import BATCH, Box, Peer

_DATAGRAM_BYTES = 64 * 1024


@attrs.define(eq=False)
class _QueueEnd:
    """Either end of a `multiprocessing.Queue`."""

    _queue: "Queue[str]"

    async def send(self, body: str) -> None:
        self._queue.put(body)

    async def receive(self, limit: int = BATCH) -> list[str]:
        bodies = [self._queue.get()]
        try:
            while len(bodies) < limit:
                bodies.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return bodies

    async def acknowledge(self) -> None:
        pass


@attrs.frozen
class _QueueMailboxes:
    queues: "Mapping[Box, Queue[str]]"

    @asynccontextmanager
    async def open_sender(self, box: Box, _writer: int) -> AsyncIterator[_QueueEnd]:
        yield _QueueEnd(self.queues[box])

    @asynccontextmanager
    async def open_receiver(self, box: Box) -> AsyncIterator[_QueueEnd]:
        yield _QueueEnd(self.queues[box])

    async def fill(self, _box: Box, _bodies: Sequence[str]) -> int:
        return 0


@attrs.define(eq=False)
class _SocketEnd:
    _socket: socket.socket

    async def send(self, body: str) -> None:
        self._socket.send(body.encode())

    async def receive(self, _limit: int = BATCH) -> list[str]:
        return [self._socket.recv(_DATAGRAM_BYTES).decode()]

    async def acknowledge(self) -> None:
        pass


@attrs.frozen
class _SocketMailboxes:
    directory: Path

    @asynccontextmanager
    async def open_sender(self, box: Box, _writer: int) -> AsyncIterator[_SocketEnd]:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as sender:
            sender.connect(str(self.directory / box))
            yield _SocketEnd(sender)

    @asynccontextmanager
    async def open_receiver(self, box: Box) -> AsyncIterator[_SocketEnd]:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as receiver:
            receiver.bind(str(self.directory / box))
            yield _SocketEnd(receiver)

    async def fill(self, _box: Box, _bodies: Sequence[str]) -> int:
        return 0


@asynccontextmanager
async def _open_queues(_directory: Path) -> AsyncIterator[_QueueMailboxes]:
    context = multiprocessing.get_context("forkserver")
    queues: dict[Box, Queue[str]] = {"left": context.Queue(), "right": context.Queue()}
    try:
        yield _QueueMailboxes(queues)
    finally:
        for each in queues.values():
            each.close()


@asynccontextmanager
async def _open_sockets(directory: Path) -> AsyncIterator[_SocketMailboxes]:
    yield _SocketMailboxes(directory)


QUEUE = Peer(
    name="multiprocessing.Queue",
    survives="nothing",
    promises="order per sender, no acknowledgement, wakes the reader",
    open_post=_open_queues,
)
SOCKET = Peer(
    name="Unix socket",
    survives="nothing",
    promises="order per sender, no acknowledgement, wakes the reader; datagrams",
    open_post=_open_sockets,
)

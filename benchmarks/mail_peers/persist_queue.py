"""SQLite queue of persist-queue, in the mode that acknowledges many messages in one call."""

import importlib
import importlib.util
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import attrs
import trio

from benchmarks.mail_peers.default_fill import send_each
from benchmarks.mail_peers.peer import BATCH, POLL, Box, Peer

_BUSY_SECONDS = 20.0


@attrs.define(eq=False)
class _Sending:
    _queue: Any

    async def send(self, body: str) -> None:
        self._queue.put(body)


@attrs.define(eq=False)
class _Receiving:
    _queue: Any
    _nothing: type[Exception]

    async def receive(self, limit: int = BATCH) -> list[str]:
        while not (bodies := self._take(limit)):  # noqa: ASYNC110 - there is no wakeup
            await trio.sleep(POLL)
        return bodies

    async def acknowledge(self) -> None:
        self._queue.task_done()

    def _take(self, limit: int) -> list[str]:
        bodies: list[str] = []
        try:
            while len(bodies) < limit:
                bodies.append(self._queue.get_nowait())
        except self._nothing:
            pass
        return bodies


@attrs.frozen
class _SqliteQueueMailboxes:
    directory: Path

    @asynccontextmanager
    async def open_sender(self, box: Box, _writer: int) -> AsyncIterator[_Sending]:
        with closing(self._open(box, auto_commit=True)) as queue:
            yield _Sending(queue)

    @asynccontextmanager
    async def open_receiver(self, box: Box) -> AsyncIterator[_Receiving]:
        with closing(self._open(box, auto_commit=False)) as queue:
            yield _Receiving(queue, _library().Empty)

    async def fill(self, box: Box, bodies: Sequence[str]) -> int:
        return await send_each(self, box, bodies)

    def _open(self, box: Box, *, auto_commit: bool) -> Any:
        path = str(self.directory / box)
        return _library().SQLiteQueue(path, auto_commit=auto_commit, timeout=_BUSY_SECONDS)


def _library() -> Any:
    return importlib.import_module("persistqueue")


@asynccontextmanager
async def _open_mailboxes(directory: Path) -> AsyncIterator[_SqliteQueueMailboxes]:
    post = _SqliteQueueMailboxes(directory)
    for box in ("left", "right"):
        # The first process creates the table; several at the same time would conflict.
        async with post.open_sender(box, 0):
            pass
    yield post


PERSIST_QUEUE = Peer(
    name="persist-queue",
    survives="power cut",
    promises="order, acknowledged by deleting; polled",
    open_post=_open_mailboxes,
    absence=None if importlib.util.find_spec("persistqueue") else "persist-queue is not installed",
)

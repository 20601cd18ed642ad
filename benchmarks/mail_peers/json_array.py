"""One JSON array per mailbox, rewritten under a lock for every message: common practice today."""

import fcntl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import attrs
import msgspec
import trio

from benchmarks.mail_peers.peer import BATCH, POLL, Box, Peer

_decoder = msgspec.json.Decoder(list[str])


@attrs.frozen
class _Array:
    """The file, replaced atomically, so that a reader never sees a partial array."""

    path: Path

    @contextmanager
    def change(self) -> Iterator[list[str]]:
        """Return the content of the array to the lock holder; it is written back when the block ends."""
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            bodies = self.read()
            yield bodies
            draft = self.path.with_suffix(".draft")
            draft.write_bytes(msgspec.json.encode(bodies))
            draft.replace(self.path)

    def read(self) -> list[str]:
        return _decoder.decode(self.path.read_bytes()) if self.path.exists() else []


@attrs.define(eq=False)
class _Sending:
    _array: _Array

    async def send(self, body: str) -> None:
        with self._array.change() as bodies:
            bodies.append(body)


@attrs.define(eq=False)
class _Receiving:
    _array: _Array
    _taken: int = 0

    async def receive(self, limit: int = BATCH) -> list[str]:
        while not (bodies := self._array.read()[self._taken : self._taken + limit]):  # noqa: ASYNC110 - there is no wakeup
            await trio.sleep(POLL)
        self._taken += len(bodies)
        return bodies

    async def acknowledge(self) -> None:
        with self._array.change() as bodies:
            del bodies[: self._taken]
        self._taken = 0


@attrs.frozen
class _ArrayMailboxes:
    directory: Path

    @asynccontextmanager
    async def open_sender(self, box: Box, _writer: int) -> AsyncIterator[_Sending]:
        yield _Sending(self._array(box))

    @asynccontextmanager
    async def open_receiver(self, box: Box) -> AsyncIterator[_Receiving]:
        yield _Receiving(self._array(box))

    async def fill(self, box: Box, bodies: Sequence[str]) -> int:
        with self._array(box).change() as waiting:
            waiting.extend(bodies)
        return len(bodies)

    def _array(self, box: Box) -> _Array:
        return _Array(self.directory / f"{box}.json")


@asynccontextmanager
async def _open_mailboxes(directory: Path) -> AsyncIterator[_ArrayMailboxes]:
    yield _ArrayMailboxes(directory)


JSON_ARRAY = Peer(
    name="JSON array, locked",
    survives="kill -9",
    promises="order, acknowledged by rewriting; polled",
    open_post=_open_mailboxes,
)

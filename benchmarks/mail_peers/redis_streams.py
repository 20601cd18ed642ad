"""Redis Streams with a consumer group, one message per command, over a Unix socket."""

import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Literal

import attrs
import trio

from benchmarks.mail_peers.default_fill import send_each
from benchmarks.mail_peers.peer import BATCH, Box, Peer
from benchmarks.mail_peers.redis_clients import HAS_LIBRARY, BareClient, Client, LibraryClient

_START_SECONDS = 10.0

AppendSync = Literal["everysec", "always"]
Connect = Callable[[Path], Client]


@attrs.define(eq=False)
class _Sending:
    _client: Client
    _box: Box

    async def send(self, body: str) -> None:
        self._client.add(self._box, body)


@attrs.define(eq=False)
class _Receiving:
    _client: Client
    _box: Box
    _taken: list[str] = attrs.field(factory=list)

    async def receive(self, limit: int = BATCH) -> list[str]:
        entries = self._client.read(self._box, limit)
        self._taken += [key for key, _ in entries]
        return [body for _, body in entries]

    async def acknowledge(self) -> None:
        self._client.acknowledge(self._box, self._taken)
        self._taken.clear()


@attrs.frozen
class _StreamMailboxes:
    path: Path
    connect: Connect

    @asynccontextmanager
    async def open_sender(self, box: Box, _writer: int) -> AsyncIterator[_Sending]:
        with closing(self.connect(self.path)) as client:
            yield _Sending(client, box)

    @asynccontextmanager
    async def open_receiver(self, box: Box) -> AsyncIterator[_Receiving]:
        with closing(self.connect(self.path)) as client:
            yield _Receiving(client, box)

    async def fill(self, box: Box, bodies: Sequence[str]) -> int:
        return await send_each(self, box, bodies)


@asynccontextmanager
async def _open_mailboxes(sync: AppendSync, connect: Connect, directory: Path) -> AsyncIterator[_StreamMailboxes]:
    path = directory / "redis.sock"
    options = ("--port", "0", "--unixsocket", str(path), "--dir", str(directory), "--save", "", "--appendonly", "yes")
    command = [shutil.which("redis-server") or "redis-server", *options, "--appendfsync", sync]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:  # noqa: ASYNC220 - starting blocks for milliseconds only
        try:
            with closing(await _greet(path)) as client:
                for box in ("left", "right"):
                    client.make(box)
            yield _StreamMailboxes(path, connect)
        finally:
            server.terminate()


async def _greet(path: Path) -> Client:
    with trio.fail_after(_START_SECONDS):
        while True:
            try:
                return BareClient.open(path)
            except (FileNotFoundError, ConnectionRefusedError):
                await trio.sleep(0.02)


_PROMISES = "order, acknowledged (and kept), wakes the reader"
_NO_SERVER = None if shutil.which("redis-server") else "redis-server is not installed"

REDIS_EVERYSEC = Peer(
    name="Redis Streams",
    survives="kill -9",
    promises=f"{_PROMISES}; by its own library",
    open_post=partial(_open_mailboxes, "everysec", LibraryClient.open),
    absence=_NO_SERVER or (None if HAS_LIBRARY else "the package redis is not installed"),
)
REDIS_ALWAYS = attrs.evolve(
    REDIS_EVERYSEC,
    name="Redis Streams, always",
    survives="power cut",
    open_post=partial(_open_mailboxes, "always", LibraryClient.open),
)
REDIS_EVERYSEC_BARE = Peer(
    name="Redis Streams, bare",
    survives="kill -9",
    promises=f"{_PROMISES}; by no more than the bytes of its protocol, without a library",
    open_post=partial(_open_mailboxes, "everysec", BareClient.open),
    absence=_NO_SERVER,
    is_bare=True,
)
REDIS_ALWAYS_BARE = attrs.evolve(
    REDIS_EVERYSEC_BARE,
    name="Redis Streams, always, bare",
    survives="power cut",
    open_post=partial(_open_mailboxes, "always", BareClient.open),
)

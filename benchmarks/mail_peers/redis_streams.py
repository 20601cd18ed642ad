"""Redis Streams with a consumer group, one message a command, over a Unix socket."""

import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from io import BufferedRWPair
from pathlib import Path
from typing import Any, Literal

import attrs
import trio

from benchmarks.mail_peers.filling import send_each
from benchmarks.mail_peers.peer import BATCH, Box, Peer

_GROUP = "readers"
_START_SECONDS = 10.0

AppendSync = Literal["everysec", "always"]


@attrs.define(eq=False)
class _Connection:
    """The protocol of Redis, as far as it is needed."""

    _socket: socket.socket
    _file: BufferedRWPair

    @classmethod
    def open(cls, path: Path) -> "_Connection":
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.connect(str(path))
        except OSError:
            connected.close()
            raise
        return cls(connected, connected.makefile("rwb"))

    def call(self, *words: str) -> Any:
        """The answer to one command. Raises `ValueError` if it is an error."""
        encoded = [word.encode() for word in words]
        parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded]
        self._file.write(b"*%d\r\n%s" % (len(parts), b"".join(parts)))
        self._file.flush()
        return self._read()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def _read(self) -> Any:
        line = self._file.readline().removesuffix(b"\r\n").decode()
        kind, rest = line[:1], line[1:]
        if kind == "+":
            return rest
        if kind == ":":
            return int(rest)
        if kind == "$":
            return None if rest == "-1" else self._file.read(int(rest) + 2)[:-2].decode()
        if kind == "*":
            return None if rest == "-1" else [self._read() for _ in range(int(rest))]
        raise ValueError(line or "the server is gone")


@attrs.define(eq=False)
class _Sending:
    _connection: _Connection
    _box: Box

    async def send(self, body: str) -> None:
        self._connection.call("XADD", self._box, "*", "body", body)


@attrs.define(eq=False)
class _Receiving:
    _connection: _Connection
    _box: Box
    _taken: list[str] = attrs.field(factory=list)

    async def receive(self, limit: int = BATCH) -> list[str]:
        wanted = ("COUNT", str(limit), "BLOCK", "0", "STREAMS", self._box, ">")
        [[_, entries]] = self._connection.call("XREADGROUP", "GROUP", _GROUP, "reader", *wanted)
        self._taken += [key for key, _ in entries]
        return [body for _, (_, body) in entries]

    async def acknowledge(self) -> None:
        self._connection.call("XACK", self._box, _GROUP, *self._taken)
        self._taken.clear()


@attrs.frozen
class _StreamPost:
    path: Path

    @asynccontextmanager
    async def open_sender(self, box: Box, _writer: int) -> AsyncIterator[_Sending]:
        with closing(_Connection.open(self.path)) as connection:
            yield _Sending(connection, box)

    @asynccontextmanager
    async def open_receiver(self, box: Box) -> AsyncIterator[_Receiving]:
        with closing(_Connection.open(self.path)) as connection:
            yield _Receiving(connection, box)

    async def fill(self, box: Box, bodies: Sequence[str]) -> int:
        return await send_each(self, box, bodies)


@asynccontextmanager
async def _open_post(sync: AppendSync, directory: Path) -> AsyncIterator[_StreamPost]:
    path = directory / "redis.sock"
    options = ("--port", "0", "--unixsocket", str(path), "--dir", str(directory), "--save", "", "--appendonly", "yes")
    command = [shutil.which("redis-server") or "redis-server", *options, "--appendfsync", sync]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:  # noqa: ASYNC220 - starting blocks for milliseconds only
        try:
            with closing(await _connect(path)) as connection:
                for box in ("left", "right"):
                    connection.call("XGROUP", "CREATE", box, _GROUP, "0", "MKSTREAM")
            yield _StreamPost(path)
        finally:
            server.terminate()


async def _connect(path: Path) -> _Connection:
    with trio.fail_after(_START_SECONDS):
        while True:
            try:
                return _Connection.open(path)
            except (FileNotFoundError, ConnectionRefusedError):
                await trio.sleep(0.02)


_PROMISES = "order, acknowledged (and kept), wakes the reader"
_ABSENCE = None if shutil.which("redis-server") else "redis-server is not installed"

REDIS_EVERYSEC = Peer(
    name="Redis Streams",
    survives="kill -9",
    promises=_PROMISES,
    open_post=partial(_open_post, "everysec"),
    absence=_ABSENCE,
)
REDIS_ALWAYS = Peer(
    name="Redis Streams, always",
    survives="power cut",
    promises=_PROMISES,
    open_post=partial(_open_post, "always"),
    absence=_ABSENCE,
)

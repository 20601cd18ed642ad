"""Two clients for Redis: its Python library, and the bare protocol."""

import importlib
import importlib.util
import socket
from collections.abc import Sequence
from io import BufferedRWPair
from pathlib import Path
from typing import Any, Protocol

import attrs

GROUP = "readers"
_READER = "reader"

HAS_LIBRARY = importlib.util.find_spec("redis") is not None

Entry = tuple[str, str]
"""Key of a message, and its text."""


class Client(Protocol):
    """Operations on Redis: a stream with a consumer group, one message per command."""

    def make(self, stream: str) -> None:
        """Create an empty stream. Raises `OSError` as long as the server does not listen."""
        ...

    def add(self, stream: str, body: str) -> None:
        """Return once the server has stored the message, with its configured durability."""
        ...

    def read(self, stream: str, limit: int) -> Sequence[Entry]:
        """Wait for messages, and return at most *limit*."""
        ...

    def acknowledge(self, stream: str, keys: Sequence[str]) -> None:
        """Acknowledge messages, so that they are not delivered again."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


@attrs.define(eq=False)
class LibraryClient:
    """Client that uses the Python library of Redis."""

    _redis: Any

    @classmethod
    def open(cls, path: Path) -> "LibraryClient":
        """Connect to the server on the socket *path*."""
        redis = importlib.import_module("redis")
        return cls(redis.Redis(unix_socket_path=str(path), decode_responses=True, protocol=2))

    def make(self, stream: str) -> None:
        """As `Client.make`."""
        self._redis.xgroup_create(stream, GROUP, id="0", mkstream=True)

    def add(self, stream: str, body: str) -> None:
        """As `Client.add`."""
        self._redis.xadd(stream, {"body": body})

    def read(self, stream: str, limit: int) -> list[Entry]:
        """As `Client.read`."""
        [(_, entries)] = self._redis.xreadgroup(GROUP, _READER, {stream: ">"}, count=limit, block=0)
        return [(key, fields["body"]) for key, fields in entries]

    def acknowledge(self, stream: str, keys: Sequence[str]) -> None:
        """As `Client.acknowledge`."""
        self._redis.xack(stream, GROUP, *keys)

    def close(self) -> None:
        """As `Client.close`."""
        self._redis.close()


@attrs.define(eq=False)
class BareClient:
    """Client that implements the needed part of the Redis protocol."""

    _socket: socket.socket
    _file: BufferedRWPair

    @classmethod
    def open(cls, path: Path) -> "BareClient":
        """Connect to the server on the socket *path*. Raises `OSError` if it does not listen."""
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.connect(str(path))
        except OSError:
            connected.close()
            raise
        return cls(connected, connected.makefile("rwb"))

    def make(self, stream: str) -> None:
        """As `Client.make`."""
        self._call("XGROUP", "CREATE", stream, GROUP, "0", "MKSTREAM")

    def add(self, stream: str, body: str) -> None:
        """As `Client.add`."""
        self._call("XADD", stream, "*", "body", body)

    def read(self, stream: str, limit: int) -> list[Entry]:
        """As `Client.read`."""
        wanted = ("COUNT", str(limit), "BLOCK", "0", "STREAMS", stream, ">")
        [[_, entries]] = self._call("XREADGROUP", "GROUP", GROUP, _READER, *wanted)
        return [(key, body) for key, (_, body) in entries]

    def acknowledge(self, stream: str, keys: Sequence[str]) -> None:
        """As `Client.acknowledge`."""
        self._call("XACK", stream, GROUP, *keys)

    def close(self) -> None:
        """As `Client.close`."""
        self._file.close()
        self._socket.close()

    def _call(self, *words: str) -> Any:
        """Return the reply to one command. Raises `ValueError` for an error reply."""
        encoded = [word.encode() for word in words]
        parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded]
        self._file.write(b"*%d\r\n%s" % (len(parts), b"".join(parts)))
        self._file.flush()
        return self._read()

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

"""Minimal HTTP client: writes ready bytes and reads until the response is complete."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import msgspec
import trio

RECEIVE_BYTES = 64 * 1024
END_OF_CHUNKS = b"0\r\n\r\n"


@attrs.define(eq=False)
class RawConnection:
    """One keep-alive connection with one request at a time."""

    _stream: trio.SocketStream
    _answer: bytes = b""

    async def exchange(self, request: bytes) -> bytes:
        """Send *request* and return the whole response. Raises `ValueError` unless its status is 200."""
        await self.begin(request)
        return await self.finish()

    async def begin(self, request: bytes, until: bytes = b"\r\n\r\n") -> None:
        """Send *request* and return once *until* was received."""
        await self._stream.send_all(request)
        self._answer = b""
        while until not in self._answer:
            await self._receive()
        if not self._answer.startswith(b"HTTP/1.1 200 "):
            raise ValueError(f"refused: {self._answer!r}")

    async def finish(self) -> bytes:
        """Read and return the rest of the response after `begin`."""
        head = self._answer.partition(b"\r\n\r\n")[0]
        _, length, value = head.partition(b"content-length: ")
        if length:
            end = len(head) + 4 + int(value.split(b"\r\n", 1)[0])
            while len(self._answer) < end:
                await self._receive()
        else:
            while not self._answer.endswith(END_OF_CHUNKS):
                await self._receive()
        return self._answer

    async def _receive(self) -> None:
        data = await self._stream.receive_some(RECEIVE_BYTES)
        if not data:
            raise ValueError(f"closed after {self._answer!r}")
        self._answer += data


@asynccontextmanager
async def open_connection(port: int) -> AsyncIterator[RawConnection]:
    """Open a connection to loopback that is closed when the block ends."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        yield RawConnection(stream)


def messages_request(body: bytes) -> bytes:
    """Return a request to the Messages API as bytes, including its header."""
    head = (
        "POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"x-api-key: benchmark\r\nanthropic-version: 2026-10-21\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def small_request(*, stream: bool) -> bytes:
    """Return a request with one short question."""
    message = {"role": "user", "content": "How do tests let hours pass?"}
    return messages_request(
        msgspec.json.encode({"stream": stream, "model": "claude-opus-5-5", "max_tokens": 1_000, "messages": [message]})
    )

"""An HTTP application and a misbehaving peer on one loopback connection."""

import contextlib
import functools
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import attrs
import trio

from coterie.scenarios.api_server.http.http_connection import HttpLimits, HttpRequest
from coterie.scenarios.api_server.http.http_server import Responder, serve_http
from coterie.scenarios.api_server.request.errors import ApiError

Handler = Callable[[HttpRequest, Responder], Awaitable[None]]

HASTY = HttpLimits(headers_within=0.05, body_within=0.05, idle=0.05, write_within=0.05, linger=0.05)
"""For peers that must be found too slow."""

SMALL = HttpLimits(body=1000, header_bytes=500)

ROOT_GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST_GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def echo(request: HttpRequest, respond: Responder) -> None:
    """Answer with the request as the server parsed it."""
    seen = attrs.asdict(request) | {"body": request.body.decode("latin-1")}
    await respond.send(200, [("content-type", "application/json")], json.dumps(seen).encode())


@attrs.define(eq=False)
class Site:
    """An application around one function."""

    handler: Handler = echo

    async def handle(self, request: HttpRequest, respond: Responder) -> None:
        await self.handler(request, respond)

    def refusal(self, error: ApiError) -> tuple[Sequence[tuple[str, str]], bytes]:
        return [("content-type", "text/plain")], f"{error.kind}: {error.message}".encode()


@attrs.frozen
class HttpAnswer:
    """A response read by hand, so that a lenient client hides nothing."""

    status: int
    headers: dict[str, str]
    body: bytes

    @classmethod
    def parse(cls, raw: bytes) -> "HttpAnswer":
        """Split the bytes of one answer; a chunked body stays chunked."""
        head, _, body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        return cls(int(first.split(" ")[1]), {name.lower(): value for name, value in pairs}, body)


@contextlib.asynccontextmanager
async def serving(handler: Handler = echo, limits: HttpLimits = HttpLimits()) -> AsyncIterator[int]:  # noqa: B008 - frozen
    """A server on a port of its own while the block runs."""
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            yield await nursery.start(functools.partial(serve_http, Site(handler), limits=limits))
            nursery.cancel_scope.cancel()


async def connect(port: int) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", port)


async def read_to_end(stream: trio.SocketStream) -> bytes:
    return b"".join([part async for part in stream])


async def read_one(stream: trio.SocketStream) -> HttpAnswer:
    """Read one answer that has a content-length, and leave the connection open."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        raw += await stream.receive_some()
    answer = HttpAnswer.parse(raw)
    while len(answer.body) < int(answer.headers["content-length"]):
        answer = attrs.evolve(answer, body=answer.body + await stream.receive_some())
    return answer


async def talk(port: int, sent: bytes) -> bytes:
    """Send, then read until the server closes."""
    async with await connect(port) as stream:
        await stream.send_all(sent)
        return await read_to_end(stream)


async def assert_serves(port: int) -> None:
    """Check that a good request is answered."""
    assert HttpAnswer.parse(await talk(port, LAST_GET)).status == 200


def reset(stream: trio.SocketStream) -> None:
    """Drop the connection without an end, as a peer that crashes does."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()

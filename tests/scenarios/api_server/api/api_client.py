"""A client of the embedded server that shows each answer with its status, headers and end."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import attrs
import h11
import msgspec
import trio

from coterie.scenarios.api_server.control_endpoint import PREFIX, TOKEN_HEADER
from tests.embedded_server import Served

AUTH = {"x-api-key": "test-key", "anthropic-version": "2026-10-21", "content-type": "application/json"}
MODEL = "claude-opus-5"
"""Thinks only when asked, takes every tool choice, caches from 512 tokens and binds no thinking."""


@attrs.frozen(kw_only=True)
class ApiAnswer:
    """A received answer, possibly incomplete."""

    status: int | None = None
    """None when not even a status came."""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    body: bytes = b""
    is_whole: bool = True
    """False when the connection was reset before the end."""

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def error(self) -> str:
        """The message of the error envelope; fails unless the body is one and its request id is the header's."""
        envelope = self.json
        assert envelope["type"] == "error"
        assert envelope["request_id"] == self.headers["request-id"]
        message: str = envelope["error"]["message"]
        return message

    @property
    def events(self) -> list[dict[str, Any]]:
        """The data of a stream's events; fails if one is torn, or is named otherwise than its data says."""
        *written, rest = self.body.decode().split("\n\n")
        assert rest == ""
        return [_event(text) for text in written]


def _event(text: str) -> dict[str, Any]:
    name, data = text.split("\n")
    value: dict[str, Any] = msgspec.json.decode(data.removeprefix("data: "))
    assert name == f"event: {value['type']}"
    return value


@attrs.define(eq=False)
class ApiPeer:
    """One connection, used for one request after the other."""

    stream: trio.SocketStream
    _protocol: h11.Connection = attrs.field(init=False, factory=lambda: h11.Connection(h11.CLIENT))

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        given = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        fields = [(b"host", b"127.0.0.1"), (b"content-length", b"%d" % len(body)), *given]
        for event in (h11.Request(method=method, target=path, headers=fields), h11.Data(data=body), h11.EndOfMessage()):
            await self.stream.send_all(self._protocol.send(event) or b"")

    async def read(self) -> ApiAnswer:
        """Read an answer to its end, or to the reset that cuts it off."""
        answer = ApiAnswer()
        try:
            while not isinstance(event := await self._next(), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    named = {name.decode(): value.decode() for name, value in event.headers}
                    answer = attrs.evolve(answer, status=event.status_code, headers=named)
                else:
                    answer = attrs.evolve(answer, body=answer.body + bytes(event.data))
        except trio.BrokenResourceError:
            return attrs.evolve(answer, is_whole=False)
        if self._protocol.our_state is h11.DONE:
            self._protocol.start_next_cycle()
        return answer

    async def _next(self) -> Any:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            self._protocol.receive_data(await self.stream.receive_some())
        return event


@asynccontextmanager
async def open_peer(served: Served) -> AsyncIterator[ApiPeer]:
    """A connection that must be done within ten seconds."""
    with trio.fail_after(10):
        async with await trio.open_tcp_stream("127.0.0.1", served.port) as stream:
            yield ApiPeer(stream)


def request(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 1000, "messages": [{"role": "user", "content": text}], **fields}


def script_replying(said: str, **fields: Any) -> str:
    return msgspec.json.encode({"default": [{"text": said, "times": "always", **fields}]}).decode()


def named(agent: str, turn: int = 1, purpose: str = "turn") -> dict[str, str]:
    """The headers with which an agent's client says who asks."""
    return {"x-coterie-agent": agent, "x-coterie-turn": str(turn), "x-coterie-purpose": purpose}


async def ask(
    served: Served, body: Any = None, *, path: str = "/v1/messages", method: str = "POST", **headers: str | None
) -> ApiAnswer:
    """Send one request on its own connection, by default a small valid one.

    *body* is JSON data or raw bytes. *headers* override the defaults.
    """
    content = body if isinstance(body, bytes) else msgspec.json.encode(request() if body is None else body)
    over = {name.replace("_", "-"): value for name, value in headers.items()}
    fields = {name: value for name, value in {**AUTH, **over}.items() if value is not None}
    async with open_peer(served) as peer:
        await peer.send(method, path, fields, content)
        return await peer.read()


async def control(
    served: Served, name: str, body: Any = b"", *, method: str | None = None, token: str = ""
) -> ApiAnswer:
    """Ask the control side: POST with a *body*, else GET, with the server's own token unless another is given."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    headers = {TOKEN_HEADER: token or served.server.options.token}
    async with open_peer(served) as peer:
        await peer.send(method or ("POST" if content else "GET"), PREFIX + name, headers, content)
        return await peer.read()


async def until(condition: Callable[[], bool]) -> None:
    """Let the server run until *condition* holds, for at most five seconds."""
    with trio.fail_after(5):
        while not condition():
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def open_strict_sdk(served: Served) -> AsyncIterator[anthropic.AsyncAnthropic]:
    """The SDK, made to fail on any answer that is not of its declared type."""
    transport = anthropic.DefaultAsyncHttpxClient(verify=False)
    async with anthropic.AsyncAnthropic(
        api_key="test-key",
        base_url=served.url,
        max_retries=0,
        http_client=transport,
        _strict_response_validation=True,
    ) as client:
        yield client

"""The embedded Messages API server inside a test, over real HTTP on loopback."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anthropic
import attrs
import msgspec
import trio

from coterie.clock import Clock
from coterie.scenarios.api_server.api.messages_endpoint import ServerOptions
from coterie.scenarios.api_server.app import EmbeddedServer
from coterie.scenarios.api_server.http.http_connection import HttpLimits, HttpRequest
from coterie.scenarios.api_server.http.http_server import Responder, serve_http
from coterie.scenarios.api_server.request.errors import ApiError
from coterie.scenarios.api_server.script.script_parser import parse_script

ECHO = 'default: [{text: "You said: {{last_user_text}}", times: always}]'


@attrs.frozen(kw_only=True)
class Served:
    """A running server and the clock it reads."""

    server: EmbeddedServer
    port: int
    received: list[HttpRequest]
    """Requests as they arrived, with their bytes."""

    @property
    def url(self) -> str:
        """Base URL for a client of the Messages API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def clock(self) -> Clock:
        """Clock of the server; tests move it to expire cache entries."""
        return self.server.clock

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Request log, in the form that the control endpoint returns."""
        entries: list[dict[str, Any]] = msgspec.json.decode(self.server.log.to_bytes())["requests"]
        return entries


@attrs.frozen
class _Recorder:
    """The server behind a list of the requests that arrive."""

    server: EmbeddedServer
    received: list[HttpRequest] = attrs.field(factory=list)

    async def handle(self, request: HttpRequest, respond: Responder) -> None:
        self.received.append(request)
        await self.server.handle(request, respond)

    def refusal(self, error: ApiError) -> tuple[Sequence[tuple[str, str]], bytes]:
        return self.server.refusal(error)


@asynccontextmanager
async def open_served(script: str = ECHO, *, limits: HttpLimits | None = None, **options: Any) -> AsyncIterator[Served]:
    """Serve *script* in this process until the block ends; fails if a response failed for an unplanned reason."""
    server = EmbeddedServer(ServerOptions(script=parse_script(script, "test.yaml"), **options))
    recorder = _Recorder(server)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(serve_http, recorder, limits=limits or HttpLimits()))
        yield Served(server=server, port=port, received=recorder.received)
        nursery.cancel_scope.cancel()
    assert not server.bugs, server.bugs[0]


@asynccontextmanager
async def open_sdk(served: Served, key: str = "test-key") -> AsyncIterator[anthropic.AsyncAnthropic]:
    """Open a client of the real SDK without its retries."""
    transport = anthropic.DefaultAsyncHttpxClient(verify=False)
    async with anthropic.AsyncAnthropic(
        api_key=key, base_url=served.url, max_retries=0, http_client=transport
    ) as client:
        yield client

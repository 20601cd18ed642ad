"""HTTP layer of the embedded server with constant replies, in a separate process: the minimum cost of any server.

As a script it listens on a free port, prints the port, and ends when its standard input closes.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import msgspec
import trio

from coterie.scenarios.api_server.api.response_delivery import message_events
from coterie.scenarios.api_server.caching.prompt_cache import CacheResult, usage_json
from coterie.scenarios.api_server.http.http_connection import HttpRequest
from coterie.scenarios.api_server.http.http_server import Responder, serve_http
from coterie.scenarios.api_server.request.errors import ApiError

TEXT = "The clock moves for every process that reads its file."
"""Reply of the model in both servers, so that their responses have the same size."""

_VERDICT = CacheResult(hit=None, read=0, write_5m=0, write_1h=0, uncached=12, writes=(), started=0.0, deleted=None)
_MESSAGE = {
    "id": "msg_0123456789abcdef01234567",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-5-5",
    "content": [{"type": "text", "text": TEXT}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "stop_details": None,
    "usage": usage_json(_VERDICT, 14),
}
_WHOLE = msgspec.json.encode(_MESSAGE)
_EVENTS = b"".join(message_events(_MESSAGE))
_SHARED = [("request-id", "req_0123456789abcdef01234567"), ("anthropic-organization-id", "org_embedded")]
_AS_JSON = [("content-type", "application/json"), *_SHARED]
_AS_EVENTS = [("content-type", "text/event-stream; charset=utf-8"), *_SHARED]


class FixedReply:
    """Sends the same response to every request, in as many writes as the embedded server."""

    async def handle(self, request: HttpRequest, respond: Responder) -> None:
        """Respond with events if the start of the body requests a stream, else with one message."""
        if b'"stream":true' in request.body[:100]:
            await respond.start(200, _AS_EVENTS)
            await respond.write(_EVENTS)
            await respond.finish()
        else:
            await respond.send(200, _AS_JSON, _WHOLE)

    def refusal(self, error: ApiError) -> tuple[Sequence[tuple[str, str]], bytes]:
        """Return the text of the error."""
        return (), error.message.encode()


@attrs.frozen(kw_only=True)
class FixedServer:
    """A running server of fixed replies."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        """Base URL for a client."""
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def open_fixed_server() -> AsyncIterator[FixedServer]:
    """Run this file as a child process until the block ends; the child is reaped, and never outlives this process."""
    command = [sys.executable, "-P", str(Path(__file__))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220 - starting blocks for milliseconds only
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = await trio.to_thread.run_sync(process.stdout.readline)
            yield FixedServer(port=int(line), pid=process.pid)
        finally:
            process.stdin.close()


async def _serve() -> None:
    async with trio.open_nursery() as nursery, trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
        print(await nursery.start(serve_http, FixedReply()), flush=True)
        async for _ in stdin:
            pass
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(_serve)

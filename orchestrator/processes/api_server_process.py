"""Start of the embedded Messages API server, which replies with a scripted model, as a child process.

This module does not import the server: it runs `coterie serve` and reads the JSON line that the ready server prints.
"""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio

CONTROL = "/_coterie/"
TOKEN_HEADER = "x-coterie-token"  # noqa: S105 - the header's name, not a token
START_TIMEOUT = 30.0
STOP_TIMEOUT = 5.0


@attrs.define(eq=False)
class ApiServerFailed(Exception):
    """Error: the process of the embedded API server ended or timed out before the server was ready."""

    status: int | None
    output: str
    """Text that the server process wrote to standard error."""

    def __str__(self) -> str:
        error = self.output.strip().removeprefix("Error: ")
        return f"the embedded server did not start: {error or f'status {self.status}'}"


@attrs.frozen(kw_only=True)
class ApiServerHandle:
    """Address, access token and process id of an embedded API server that accepts connections."""

    url: str
    port: int
    token: str
    pid: int

    async def control(self, name: str, body: dict[str, Any] | None = None, *, query: str = "") -> Any:
        """Send request *name* to the server's control endpoint, with *body* as JSON if not None. Return the answer.

        Raises `OSError` if the server cannot be reached, and `ValueError` if it refuses the request.
        """
        method = "GET" if body is None else "POST"
        content = b"" if body is None else msgspec.json.encode(body)
        head = (
            f"{method} {CONTROL}{name}{query} HTTP/1.0\r\nhost: 127.0.0.1\r\n{TOKEN_HEADER}: {self.token}\r\n"
            f"content-length: {len(content)}\r\n\r\n"
        )
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            await stream.send_all(head.encode() + content)
            answer = b"".join([chunk async for chunk in stream])
        status, _, rest = answer.partition(b"\r\n")
        payload = rest.partition(b"\r\n\r\n")[2]
        if b" 200 " not in status:
            raise ValueError(f"the API server refused {method} {CONTROL}{name}: {payload.decode(errors='replace')}")
        return msgspec.json.decode(payload)

    async def requests(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the entries of the server's log of received requests that have a number above *since*."""
        answer: list[dict[str, Any]] = (await self.control("requests", query=f"?since={since}"))["requests"]
        return answer


@asynccontextmanager
async def open_api_server(script: Path, *arguments: str) -> AsyncIterator[ApiServerHandle]:
    """Run `coterie serve` with *script* as a child process until the block ends.

    The server ends when its standard input is closed, so it ends even if this process is killed. At the end of the
    block this function closes that pipe, waits, kills the server if it has not ended, and reaps it. Raises
    `ApiServerFailed` if the server does not start.
    """
    command = [sys.executable, "-P", "-m", "coterie", "serve", "--port", "0", "--json", "--while-stdin-open"]
    process = await trio.lowlevel.open_process(
        [*command, "--script", str(script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    try:
        yield await _ready(process)
    finally:
        with trio.CancelScope(shield=True):
            for pipe in (process.stdin, process.stdout, process.stderr):
                assert pipe is not None
                await pipe.aclose()
            with trio.move_on_after(STOP_TIMEOUT):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _ready(process: trio.Process) -> ApiServerHandle:
    assert process.stdout is not None
    assert process.stderr is not None
    line = b""
    with trio.move_on_after(START_TIMEOUT):
        async for chunk in process.stdout:
            line += chunk
            if line.endswith(b"\n"):
                return msgspec.json.decode(line, type=ApiServerHandle)
    process.kill()
    errors = b"".join([chunk async for chunk in process.stderr])
    raise ApiServerFailed(await process.wait(), errors.decode(errors="replace"))

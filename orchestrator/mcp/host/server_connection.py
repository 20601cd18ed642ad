"""Connection to one MCP server, opened on demand and reopened after a loss."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import attrs
import httpx2
import trio
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, Implementation, Tool

from coterie import __version__
from coterie.agents.events.root_events import McpChanged
from coterie.agents.mcp.messages import CallFailed, ToolCalled
from coterie.errors import first_exception
from coterie.orchestrator.mcp.host.server_process import CannotStart, StdioTransport, open_process
from coterie.orchestrator.mcp.host.tool_conversion import to_content
from coterie.orchestrator.mcp.host_protocol import ServerSpec, ServerStateChanged

CLOSE_TIMEOUT = 3.0
"""Seconds that closing a connection may take."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds before a failed connection is retried; doubled after each failure."""
PAGES = 50
"""Largest number of pages of a tool list."""
CONNECTING = 30.0
"""Seconds until an HTTP server must accept a connection or a request."""
_SESSION_OVER = "Session terminated"
"""Error message of the package if the server no longer knows the HTTP session."""


class ServerGone(Exception):
    """There is no connection; the text is the reason."""


class ToolListFailed(Exception):
    """The server does not list its tools; the text is the reason."""


@attrs.define(eq=False)
class _Live:
    """An open connection to an MCP server."""

    client: Client
    pid: int | None
    is_broken: trio.Event = attrs.field(factory=trio.Event)
    """Set by a call that finds the connection broken."""
    is_over: trio.Event = attrs.field(factory=trio.Event)
    """Set when the reason of the loss is known."""


@attrs.define(eq=False)
class McpConnection:
    """A connection to a server, owned by the task in `run`; other tasks call tools through it."""

    server: ServerSpec
    limit: float
    """Seconds until the server must be connected."""
    environment: Mapping[str, str]
    log: Path
    send: Callable[[ServerStateChanged], None]
    owner: str | None = None
    """Agent that the connection belongs to; None if all agents share it."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Cancelled when the connection is no longer needed."""
    failure: str = attrs.field(default="", init=False)
    """Reason why the last connection failed or was lost."""
    _live: _Live | None = attrs.field(default=None, init=False)
    _is_requested: trio.Event = attrs.field(factory=trio.Event, init=False)
    _settled: trio.Event | None = attrs.field(default=None, init=False)
    """Set when the running connection attempt has ended."""
    _failures: int = attrs.field(default=0, init=False)
    _not_before: float = attrs.field(default=0.0, init=False)

    async def run(self) -> None:
        """Connect whenever a call needs it, until cancelled; then every process of the server has ended."""
        with self.scope:
            while True:
                await self._is_requested.wait()
                self._is_requested = trio.Event()
                await self._stay_connected()

    async def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> ToolCalled | CallFailed:
        """Call a tool, and return its result or the reason of the failure. Cancellation is sent to the server."""
        name = self.server.name
        try:
            live = await self._connected()
            with trio.fail_after(seconds):
                return to_content(await live.client.call_tool(tool, arguments))
        except ServerGone as exc:
            return CallFailed(reason=f"The MCP server {name} is not available: {exc}.")
        except trio.TooSlowError:
            return CallFailed(reason=f"The MCP server {name} has not answered within {seconds:g} seconds.")
        except MCPError as exc:
            if exc.code != CONNECTION_CLOSED and exc.message != _SESSION_OVER:
                text = self.server.redact(exc.message)
                return ToolCalled(text=f"The MCP server {name} refused the call: {text}", is_error=True)
            live.is_broken.set()
            with trio.move_on_after(CLOSE_TIMEOUT):
                await live.is_over.wait()
            why = self.failure or "the connection was closed"
            lost = f"The MCP server {name} was lost during this call: {why}."
            return CallFailed(reason=f"{lost} It is unknown if the call was carried out. The next call connects again.")
        except Exception as exc:  # noqa: BLE001 - an invalid answer must only fail this call
            text = self.server.redact(" ".join(str(exc).split()))
            return ToolCalled(text=f"The answer of the MCP server {name} is invalid: {text}", is_error=True)

    async def tools(self) -> tuple[list[Tool], str]:
        """Return all pages of the server's tool list, and its instructions.

        Raises `ServerGone`, and `ToolListFailed` if there is no list.
        """
        live = await self._connected()
        tools: list[Tool] = []
        cursor: str | None = ""
        try:
            with trio.fail_after(self.limit):
                for _ in range(PAGES):
                    page = await live.client.list_tools(cursor=cursor or None)
                    tools += page.tools
                    if not (cursor := page.next_cursor):
                        break
        except trio.TooSlowError as exc:
            raise ToolListFailed(f"the server did not answer within {self.limit:g} seconds") from exc
        except Exception as exc:
            raise ToolListFailed(self.server.redact(" ".join(str(exc).split()))) from exc
        return tools, live.client.instructions or ""

    async def _connected(self) -> _Live:
        """Return the connection, opened if necessary. Raises `ServerGone`."""
        if self._live is None:
            if self._settled is None:
                if (wait := self._not_before - trio.current_time()) > 0:
                    raise ServerGone(f"{self.failure}; the next attempt is possible in {wait:.0f} seconds")
                self._settled = trio.Event()
                self._is_requested.set()
            await self._settled.wait()
        if self._live is None:
            raise ServerGone(self.failure)
        return self._live

    async def _stay_connected(self) -> None:
        """Connect, and return when the connection is lost and all its resources are released."""
        reason: str | None = f"it has not answered within {self.limit:g} seconds"
        with trio.CancelScope(deadline=trio.current_time() + self.limit) as scope:
            try:
                async with self._open() as (live, lost):
                    scope.deadline = float("inf")
                    self._live = live
                    self._report("connected", "", live.pid)
                    self._settle()
                    # Reported before the cleanup, so that new calls wait for the next connection.
                    self._end(await lost(live))
                    reason = None
                    scope.deadline = trio.current_time() + CLOSE_TIMEOUT
            except* (CannotStart, ServerGone) as group:
                reason = str(first_exception(group))
            except* Exception as group:  # noqa: BLE001 - an exception of the package must only fail this server
                first = first_exception(group)
                reason = reason and " ".join(f"{type(first).__name__}: {first}".split())
        if reason is not None:
            self._end(reason)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[tuple[_Live, Callable[[_Live], Awaitable[str]]]]:
        """Open a connection, and yield it with a function that waits for its loss."""
        about = Implementation(name="coterie", version=__version__)
        config = self.server.config
        if config.transport == "http":
            timeout = httpx2.Timeout(CONNECTING, read=None)
            async with httpx2.AsyncClient(headers=dict(config.headers), timeout=timeout) as http:
                streams = streamable_http_client(config.url, http_client=http)
                async with Client(streams, cache=None, client_info=about) as client:
                    yield _Live(client, None), _lost_by_call
            return
        async with open_process(self.server, self.environment, self.log) as process:
            transport = StdioTransport(process)

            async def lost(_live: _Live) -> str:
                return await _lost_by_process(transport, process.wait_ended)

            try:
                async with Client(transport.open(), cache=None, client_info=about) as client:
                    yield _Live(client, process.pid), lost
            except* MCPError as group:
                if not transport.is_over.is_set():
                    raise
                with trio.move_on_after(CLOSE_TIMEOUT):
                    raise ServerGone(transport.problem or await process.wait_ended()) from group
                raise ServerGone("the server closed its output") from group

    def _end(self, reason: str) -> None:
        reason = self.server.redact(reason)
        live, self._live, self.failure = self._live, None, reason
        # After a loss the next call reconnects immediately; after a failed connection the wait doubles.
        self._failures = 0 if live is not None else self._failures + 1
        wait = 0.0 if live is not None else min(FIRST_WAIT * 2 ** (self._failures - 1), LONGEST_WAIT)
        self._not_before = trio.current_time() + wait
        self._report("failed" if live is None else "lost", reason, None if live is None else live.pid)
        if live is not None:
            live.is_over.set()
        self._settle()

    def _settle(self) -> None:
        settled, self._settled = self._settled, None
        if settled is not None:
            settled.set()

    def _report(self, state: Literal["connected", "failed", "lost"], reason: str, pid: int | None) -> None:
        event = McpChanged(server=self.server.name, state=state, reason=reason, owner=self.owner, pid=pid)
        self.send(ServerStateChanged(event=event))


async def _lost_by_call(live: _Live) -> str:
    await live.is_broken.wait()
    return "the server ended the session, or cannot be reached"


async def _lost_by_process(transport: StdioTransport, ended: Callable[[], Awaitable[str]]) -> str:
    """Wait until a stdio server exits or closes its output, and return the reason."""
    reason = ""
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            nonlocal reason
            reason = await ended()
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        await transport.is_over.wait()
        # The output usually ends because the process exits.
        with trio.move_on_after(CLOSE_TIMEOUT if not transport.problem else 0):
            await trio.sleep_forever()
        nursery.cancel_scope.cancel()
    return reason or transport.problem or "it closed its output without exiting"

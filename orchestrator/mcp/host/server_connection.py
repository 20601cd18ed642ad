"""Connection of the MCP host (process that runs MCP servers) to one server, opened when needed, also after a loss."""

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
"""Maximum number of seconds for closing a connection, and for finding the reason of its loss."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""First and longest delay, in seconds, before the next attempt after a failed connection; doubled at each failure."""
PAGES = 50
"""Maximum number of pages of a server's tool list that are requested; further pages are ignored."""
CONNECTING = 30.0
"""Timeout in seconds to open a TCP connection to an HTTP server, and to write a request; replies have other limits."""
_CHECK_EFFECT = "It is unknown if the call was executed; check its effect before you repeat it."
_SESSION_OVER = "Session terminated"
"""Text of the `MCPError` that the `mcp` package raises if the server has dropped the HTTP session."""


class ServerGone(Exception):
    """There is no connection to the MCP server and none can be opened now; the message is the reason."""


class ToolListFailed(Exception):
    """The MCP server is connected, but its list of tools could not be fetched; the message is the reason."""


@attrs.define(eq=False)
class _Live:
    """An open connection to an MCP server."""

    client: Client
    pid: int | None
    is_broken: trio.Event = attrs.field(factory=trio.Event)
    """Set by a tool call that failed because the connection is lost."""
    is_over: trio.Event = attrs.field(factory=trio.Event)
    """Set when the connection has ended and the reason is stored in `McpConnection.failure`."""


@attrs.define(eq=False)
class McpConnection:
    """Connection to an MCP server: the task in `run` opens and closes it, and other tasks call tools through it."""

    server: ServerSpec
    limit: float
    """Timeout in seconds of one connection attempt, and of fetching the tool list."""
    environment: Mapping[str, str]
    log: Path
    send: Callable[[ServerStateChanged], None]
    owner: str | None = None
    """Name of the only agent that uses the connection; None if all agents share it, or if it only lists the tools."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Cancel scope of `run`; cancel it to close the connection permanently."""
    failure: str = attrs.field(default="", init=False)
    """Reason why the last connection attempt failed or the connection was lost; empty before the first failure."""
    _live: _Live | None = attrs.field(default=None, init=False)
    _is_requested: trio.Event = attrs.field(factory=trio.Event, init=False)
    _settled: trio.Event | None = attrs.field(default=None, init=False)
    """Event that is set when the running connection attempt succeeds or fails; None if no attempt is running."""
    _failures: int = attrs.field(default=0, init=False)
    _not_before: float = attrs.field(default=0.0, init=False)

    async def run(self) -> None:
        """Open the connection when a caller needs it, until cancelled; on return its server process has ended."""
        with self.scope:
            while True:
                await self._is_requested.wait()
                self._is_requested = trio.Event()
                await self._stay_connected()

    async def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> ToolCalled | CallFailed:
        """Connect if needed, and call *tool* with a timeout of *seconds*; return its result, or an error as a value."""
        name = self.server.name
        try:
            live = await self._connected()
            with trio.fail_after(seconds):
                return to_content(await live.client.call_tool(tool, arguments))
        except ServerGone as exc:
            return CallFailed(reason=f"The MCP server {name} is not available: {exc}. Continue without its tools.")
        except trio.TooSlowError:
            late = f"The MCP server {name} has not answered within {seconds:g} seconds."
            return CallFailed(reason=f"{late} {_CHECK_EFFECT}")
        except MCPError as exc:
            if exc.code != CONNECTION_CLOSED and exc.message != _SESSION_OVER:
                text = self.server.redact(exc.message)
                return ToolCalled(text=f"The MCP server {name} refused the call; correct it: {text}", is_error=True)
            live.is_broken.set()
            with trio.move_on_after(CLOSE_TIMEOUT):
                await live.is_over.wait()
            why = self.failure or "the connection was closed"
            lost = f"The connection to the MCP server {name} was lost during this call: {why}."
            return CallFailed(reason=f"{lost} {_CHECK_EFFECT} The next call connects again.")
        except Exception as exc:  # noqa: BLE001 - an invalid answer must only fail this call
            text = self.server.redact(" ".join(str(exc).split()))
            return ToolCalled(text=f"The MCP server {name} sent an invalid reply; tell the user: {text}", is_error=True)

    async def tools(self) -> tuple[list[Tool], str]:
        """Connect if needed; return the server's tools and instructions. Raises `ServerGone` and `ToolListFailed`."""
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
            raise ToolListFailed(f"the server did not list its tools in {self.limit:g} seconds; check it") from exc
        except Exception as exc:
            raise ToolListFailed(self.server.redact(" ".join(str(exc).split()))) from exc
        return tools, live.client.instructions or ""

    async def _connected(self) -> _Live:
        """Return the connection, opened if needed. Raises `ServerGone` on failure, and while no new attempt is due."""
        if self._live is None:
            if self._settled is None:
                if (wait := self._not_before - trio.current_time()) > 0:
                    raise ServerGone(f"connecting failed, {self.failure}; the next attempt can begin in {wait:.0f} s")
                self._settled = trio.Event()
                self._is_requested.set()
            await self._settled.wait()
        if self._live is None:
            raise ServerGone(self.failure)
        return self._live

    async def _stay_connected(self) -> None:
        """Make one connection attempt; return after its failure, or when the connection is lost and fully closed."""
        reason: str | None = f"it has not answered within {self.limit:g} seconds (setting mcp.start_seconds)"
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
        """Open a connection and yield it, with a function that waits for the loss of it and returns the reason."""
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
                raise ServerGone("the server closed its standard output; check its program") from group

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
    return "the server ended the HTTP session, or cannot be reached"


async def _lost_by_process(transport: StdioTransport, ended: Callable[[], Awaitable[str]]) -> str:
    """Wait until a stdio server exits, closes its output or breaks the protocol, and return the reason of the loss."""
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
    return reason or transport.problem or "the server closed its standard output without exiting; check its program"

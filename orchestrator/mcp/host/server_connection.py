"""Connection to one MCP server: opened on demand, reopened after a loss."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import trio
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, Implementation, Tool

from coterie import __version__
from coterie.agents.mcp.messages import CallFailed, ToolCalled
from coterie.orchestrator.mcp.host.server_process import CannotStart, open_process
from coterie.orchestrator.mcp.host.stdio_transport import StdioTransport
from coterie.orchestrator.mcp.host.tool_conversion import to_content
from coterie.orchestrator.mcp.host_protocol import ServerSpec, ServerState, ServerStateChanged

CLOSE_TIMEOUT = 3.0
"""Seconds that a farewell to a server may take."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds before a server that could not be connected is tried again; each time twice as long."""
PAGES = 50
"""Pages of tools that are asked for."""
CONNECTING = 30.0
"""Seconds in which an HTTP server takes a connection, or a request."""
_SESSION_OVER = "Session terminated"
"""What the package says for an HTTP session that the server does not know any more."""


@attrs.define(eq=False)
class ServerGone(Exception):
    """There is no connection, and the text says why."""

    reason: str

    def __str__(self) -> str:
        return self.reason


class ToolListFailed(Exception):
    """A server does not say what tools it has, and the text says why."""


@attrs.define(eq=False)
class _Live:
    """A connection that is there."""

    client: Client
    pid: int | None
    is_broken: trio.Event = attrs.field(factory=trio.Event)
    """Set by a call that finds it broken."""
    is_over: trio.Event = attrs.field(factory=trio.Event)
    """Set when it is known why."""


@attrs.define(eq=False)
class McpConnection:
    """A connection that `run` owns; others call through it."""

    server: ServerSpec
    limit: float
    """Seconds in which the server must be there."""
    environment: Mapping[str, str]
    log: Path
    send: Callable[[ServerStateChanged], None]
    owner: str | None = None
    """Whose it is; None if all agents share it."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Cancelled when it is not wanted any more."""
    failure: str = attrs.field(default="", init=False)
    """Why there is no connection, if there was to be one."""
    _live: _Live | None = attrs.field(default=None, init=False)
    _wanted: trio.Event = attrs.field(factory=trio.Event, init=False)
    _settled: trio.Event | None = attrs.field(default=None, init=False)
    """Of an attempt under way: set when it has come to something."""
    _failures: int = attrs.field(default=0, init=False)
    _not_before: float = attrs.field(default=0.0, init=False)

    async def run(self) -> None:
        """Connect whenever that is wanted, until cancelled; then nothing of the server is left."""
        with self.scope:
            while True:
                await self._wanted.wait()
                self._wanted = trio.Event()
                await self._stay_connected()

    async def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> ToolCalled | CallFailed:
        """What the server answers, or why it does not. Cancelled, the server is told."""
        name = self.server.name
        try:
            live = await self._connected()
            with trio.fail_after(seconds):
                return to_content(await live.client.call_tool(tool, arguments))
        except ServerGone as exc:
            return CallFailed(reason=f"The MCP server {name} is not there: {exc}.")
        except trio.TooSlowError:
            return CallFailed(reason=f"The MCP server {name} has not answered within {seconds:g} seconds.")
        except MCPError as exc:
            if not _is_end(exc):
                words = self.server.redact(exc.message)
                return ToolCalled(text=f"The MCP server {name} refused the call: {words}", is_error=True)
            return CallFailed(reason=await self._loss_reason(live))
        except Exception as exc:  # noqa: BLE001 - what the package makes of an answer that is none is about this call alone
            words = self.server.redact(" ".join(str(exc).split()))
            return ToolCalled(text=f"What the MCP server {name} answered cannot be used: {words}", is_error=True)

    async def tools(self) -> tuple[list[Tool], str]:
        """What the server lists, all pages of it, and what it says on how to use it.

        Raises `ServerGone` and, if there is no list, `ToolListFailed`.
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
            raise ToolListFailed(f"none came within {self.limit:g} seconds") from exc
        except Exception as exc:
            raise ToolListFailed(self.server.redact(" ".join(str(exc).split()))) from exc
        return tools, live.client.instructions or ""

    async def _connected(self) -> _Live:
        """The connection, made if need be. Raises `ServerGone`."""
        if self._live is None:
            if self._settled is None:
                if (wait := self._not_before - trio.current_time()) > 0:
                    raise ServerGone(f"{self.failure}; it will be tried again in {wait:.0f} seconds or later")
                self._settled = trio.Event()
                self._wanted.set()
            await self._settled.wait()
        if self._live is None:
            raise ServerGone(self.failure)
        return self._live

    async def _loss_reason(self, live: _Live) -> str:
        """What became of a connection in the middle of a call."""
        live.is_broken.set()
        with trio.move_on_after(CLOSE_TIMEOUT):
            await live.is_over.wait()
        why = self.failure or "the connection was closed"
        return (
            f"The MCP server {self.server.name} was lost in the middle of this call: {why}. Nobody knows whether the "
            "call was carried out. It is connected again for the next one."
        )

    async def _stay_connected(self) -> None:
        """Connect, and return when there is no connection any more and nothing is left of it."""
        reason: str | None = f"it has not answered within {self.limit:g} seconds"
        with trio.CancelScope(deadline=trio.current_time() + self.limit) as scope:
            try:
                async with self._open() as (live, lost):
                    scope.deadline = float("inf")
                    self._begin(live)
                    # Told at once: who calls from here on wants the next connection, not what is left of this one.
                    self._end(await lost(live))
                    reason = None
                    scope.deadline = trio.current_time() + CLOSE_TIMEOUT
            except* (CannotStart, ServerGone) as group:
                reason = str(_first(group))
            except* Exception as group:  # noqa: BLE001 - whatever the package raises is about this server alone
                first = _first(group)
                reason = reason and " ".join(f"{type(first).__name__}: {first}".split())
        if reason is not None:
            self._end(reason)

    @asynccontextmanager
    async def _open(self) -> "AsyncIterator[tuple[_Live, _Lost]]":
        """Connect until the block ends, which is given what waits for the end of the connection."""
        about = Implementation(name="coterie", version=__version__)
        if self.server.transport == "http":
            timeout = httpx2.Timeout(CONNECTING, read=None)
            async with httpx2.AsyncClient(headers=dict(self.server.headers), timeout=timeout) as http:
                streams = streamable_http_client(self.server.url, http_client=http)
                async with Client(streams, cache=None, client_info=about) as client:
                    yield _Live(client, None), _lost_by_call
            return
        async with open_process(self.server, self.environment, self.log) as process:
            speech = StdioTransport(process)

            async def lost(_live: _Live) -> str:
                return await _lost_by_process(speech, process.wait_ended)

            try:
                async with Client(speech.open(), cache=None, client_info=about) as client:
                    yield _Live(client, process.pid), lost
            except* MCPError as group:
                if not speech.is_over.is_set():
                    raise
                with trio.move_on_after(CLOSE_TIMEOUT):
                    raise ServerGone(speech.problem or await process.wait_ended()) from group
                raise ServerGone("it closed its output") from group

    def _begin(self, live: _Live) -> None:
        self._live = live
        self._report("connected", "", live.pid)
        self._settle()

    def _end(self, reason: str) -> None:
        reason = self.server.redact(reason)
        live, self._live, self.failure = self._live, None, reason
        # A loss costs the next call no wait; who cannot be connected at all is left alone for longer and longer.
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

    def _report(self, state: ServerState, reason: str, pid: int | None) -> None:
        self.send(ServerStateChanged(server=self.server.name, state=state, reason=reason, owner=self.owner, pid=pid))


_Lost = Callable[[_Live], Awaitable[str]]
"""Waits until a connection is lost, and says why."""


async def _lost_by_call(live: _Live) -> str:
    await live.is_broken.wait()
    return "the server has ended the session, or cannot be reached any more"


async def _lost_by_process(speech: StdioTransport, ended: Callable[[], Awaitable[str]]) -> str:
    """Why a stdio server is gone: it ended, or it cannot be listened to any more."""
    reason = ""
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            nonlocal reason
            reason = await ended()
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        await speech.is_over.wait()
        # Most often its output ends because it does.
        with trio.move_on_after(CLOSE_TIMEOUT if not speech.problem else 0):
            await trio.sleep_forever()
        nursery.cancel_scope.cancel()
    return reason or speech.problem or "it closed its output, and lives on"


def _is_end(error: MCPError) -> bool:
    return error.code == CONNECTION_CLOSED or error.message == _SESSION_OVER


def _first(group: BaseExceptionGroup[Exception]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error

"""Supervisor of the MCP host process: starts it, replaces it after a crash, and stores its tool list."""

import importlib.util
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import msgspec
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.events.agent_events import Event, Noticed
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.mcp.client import McpAccess
from coterie.agents.mcp.tool_list_file import McpToolList, load_tool_list
from coterie.agents.settings import McpSettings
from coterie.agents.tools.worker_process import command_environment
from coterie.errors import ConfigInvalid
from coterie.orchestrator.mcp.host_process import (
    HOST_EXIT_TIMEOUT,
    HOST_START_TIMEOUT,
    INSTALL,
    McpHostProcess,
    open_call_listener,
)
from coterie.orchestrator.mcp.host_protocol import (
    HostMessage,
    OpenServers,
    ServersListed,
    ServerSpec,
    ServerStateChanged,
)
from coterie.orchestrator.mcp.mcp_servers import McpServers, load_servers
from coterie.orchestrator.supervisor.termination import kill_orphans
from coterie.process_identity import AGENT_VARIABLE, SESSION_VARIABLE, agent_tag
from coterie.session_directory import MAIN, TRANSCRIPT, SessionDirectory

LOGS = "mcp"
"""Directory, in that of the session, for standard error of the MCP servers and of the host process."""
MAX_HOST_RESTARTS = 5
"""Number of times that the host is restarted after a crash."""


@attrs.define(eq=False)
class McpHostSupervisor:
    """The MCP servers of a session, as seen by the root. Created by `open_mcp`."""

    session: SessionDirectory
    emit: Callable[[Event], None]
    settings: McpSettings
    servers: tuple[ServerSpec, ...]
    environment: Mapping[str, str]
    is_listed: bool
    """True if the session has a tool list from an earlier start."""
    listener: socket.socket | None
    """Socket for the calls of agents; None if there are no servers."""
    _token: str = attrs.field(factory=lambda: secrets.token_hex(32), init=False, repr=False)
    _host: McpHostProcess | None = attrs.field(default=None, init=False)
    _starts: int = attrs.field(default=0, init=False)
    _is_known: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when the tool list of the session is known."""

    @property
    def access(self) -> McpAccess | None:
        """Address and token with which agents call the host; None if there are no servers."""
        if self.listener is None:
            return None
        return McpAccess(address=os.fsdecode(self.listener.getsockname()), token=self._token)

    async def wait_listed(self) -> None:
        """Return when the tool list is known and stored in the session's directory, at the latest after a timeout."""
        if self.listener is None or self.is_listed:
            return
        limit = HOST_START_TIMEOUT + 2 * self.settings.start_seconds
        with trio.move_on_after(limit) as scope:
            await self._is_known.wait()
        if scope.cancelled_caught:
            self._fail(f"the servers have not listed their tools within {limit:g} seconds")
            await self._save(McpToolList())

    def start(self) -> None:
        """Start the host without waiting until it is ready; a failure is an event, and there are no servers."""
        assert self.listener is not None
        self._starts += 1
        self._host = None
        environment = {**self.environment, AGENT_VARIABLE: self._tag}
        with (self._logs() / "host.log").open("ab", buffering=0) as errors:
            try:
                self._host = McpHostProcess.start(self.listener, environment, errors.fileno())
            except OSError as exc:
                self._fail(f"the MCP host cannot be started: {exc}")

    async def supervise(self) -> None:
        """Handle the messages of the host, and restart it after a crash, until cancelled.

        Returns when the host can no longer be started.
        """
        while self._host is not None:
            await self._serve_host(self._host)
            status = await self._end(self._host)
            if self._starts > MAX_HOST_RESTARTS:
                break
            self._fail(f"the MCP host exited with status {status} and is restarted")
            self.is_listed = self.is_listed or self._is_known.is_set()
            self.start()
        if self.listener is not None:
            self._fail("no MCP server is left, because the MCP host could not be restarted")
            self.listener.close()
            self.listener = None
        self._is_known.set()

    async def release(self) -> None:
        """Stop the host and the servers, and wait until all their processes have ended. Shielded from cancellation."""
        with trio.CancelScope(shield=True):
            if self._host is not None:
                await self._end(self._host)
        if self.listener is not None:
            self.listener.close()

    @property
    def _tag(self) -> str:
        return agent_tag("mcp", self._starts)

    def _logs(self) -> Path:
        directory = self.session.directory / LOGS
        directory.mkdir(mode=0o700, exist_ok=True)
        return directory

    async def _serve_host(self, host: McpHostProcess) -> None:
        """Send the list of servers, and handle the messages of the host until it exits."""
        request = OpenServers(
            servers=self.servers,
            token=self._token,
            start_seconds=self.settings.start_seconds,
            logs=str(self._logs()),
            is_listed=self.is_listed,
        )
        try:
            async with host.open_channel(request) as channel:
                while (message := await channel.receive()) is not None:
                    await self._handle(message)
        except* ControlLost as group:
            self._fail(f"the channel to the MCP host failed: {group.exceptions[0]}")

    async def _handle(self, message: HostMessage) -> None:
        match message:
            case ServerStateChanged():
                self.emit(message.event)
            case ServersListed():
                for server in message.servers:
                    for reason in server.left_out:
                        self.emit(Noticed(source=f"MCP server {server.name}", reason=f"cannot be offered: {reason}"))
                await self._save(_listing(message, self.servers))

    async def _save(self, listing: McpToolList) -> None:
        """Store the first tool list in the directory of the session."""
        if not self._is_known.is_set():
            try:
                await trio.to_thread.run_sync(listing.save, self.session.directory)
            except OSError as exc:
                self._fail(f"the tool list cannot be stored: {exc}")
            self._is_known.set()

    async def _end(self, host: McpHostProcess) -> int:
        """Stop the host, kill every process that it started, and return its status."""
        status = await host.stop()
        with trio.move_on_after(HOST_EXIT_TIMEOUT):
            await kill_orphans(self.session.id, self._tag)
        return status

    def _fail(self, reason: str) -> None:
        self.emit(LayerFailed(layer="mcp", reason=reason))


def _listing(message: ServersListed, specs: Sequence[ServerSpec]) -> McpToolList:
    """Build the stored tool list: agent types for each tool, and the instructions of servers for all agents."""
    kinds = {server.name: server.kinds for server in specs}
    return McpToolList(
        tools=[
            msgspec.structs.replace(tool, kinds=None if (of := kinds[server.name]) is None else list(of))
            for server in message.servers
            for tool in server.tools
        ],
        instructions={
            server.name: server.instructions
            for server in message.servers
            if server.instructions and server.tools and kinds[server.name] is None
        },
    )


@asynccontextmanager
async def open_mcp(
    session: SessionDirectory,
    settings: McpSettings | None,
    environment: Mapping[str, str],
    emit: Callable[[Event], None],
) -> AsyncIterator[McpHostSupervisor]:
    """Run the MCP servers of *session* until the block ends; none without *settings*. The caller must run `supervise`.

    An unusable server is reported as an event, and the session continues without it. Enter on the main thread.
    """
    found = McpServers()
    if settings is not None and settings.enabled:
        try:
            found = await trio.to_thread.run_sync(load_servers, session.project)
        except ConfigInvalid as exc:
            emit(Noticed(source=exc.source, reason=exc.reason))
    listing = await trio.to_thread.run_sync(load_tool_list, session.directory)
    # The start of the conversation fixes its tools.
    is_begun = listing is not None or (session.directory / "agents" / MAIN / TRANSCRIPT).exists()
    known = {tool.server for tool in (listing or McpToolList()).tools}
    specs = _startable_servers(found, session.project, emit)
    if is_begun:
        for server in specs:
            if server.name not in known:
                reason = "has no tools in this session, which started without it; start a new session to use it"
                emit(Noticed(source=f"MCP server {server.name}", reason=reason))
        specs = tuple(server for server in specs if server.name in known)
    marked = {**command_environment(environment), SESSION_VARIABLE: session.id}
    listener = open_call_listener() if specs else None
    supervisor = McpHostSupervisor(session, emit, settings or McpSettings(), specs, marked, is_begun, listener)
    if specs:
        supervisor.start()
    try:
        yield supervisor
    finally:
        await supervisor.release()


def _startable_servers(found: McpServers, project: Path, emit: Callable[[Event], None]) -> tuple[ServerSpec, ...]:
    """Return the servers that can be started, and report the reason for each other server."""
    for problem in found.problems:
        emit(Noticed(source=f"{problem.path}:{problem.line}", reason=problem.reason))
    for server in found.waiting:
        reason = f"the MCP server {server.name} waits for your approval: `coterie mcp approve {server.name}`"
        emit(Noticed(source=str(server.source), reason=reason))
    if found.approved and importlib.util.find_spec("mcp") is None:
        names = ", ".join(server.name for server in found.approved)
        reason = f"{INSTALL}; left out: {names}"
        emit(Noticed(source=str(found.approved[0].source), reason=reason))
        return ()
    specs = []
    for server in found.approved:
        try:
            specs.append(ServerSpec.of(server.config, os.environ, project, server.kinds))
        except ConfigInvalid as exc:
            reason = f"the MCP server {server.name} is left out: {exc.reason}"
            emit(Noticed(source=str(server.source), reason=reason))
    return tuple(specs)

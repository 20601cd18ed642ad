"""Supervisor of the MCP host (process that runs MCP servers), in the root: restarts the host, stores the tool list."""

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
"""Directory in the session's directory with logs: standard error of the MCP host process and of each MCP server."""
MAX_HOST_RESTARTS = 5
"""Maximum number of restarts after a crash of the MCP host process; then the session goes on without MCP servers."""


@attrs.define(eq=False)
class McpHostSupervisor:
    """Supervisor of a session's MCP host (process that runs the MCP servers), used by the root; see `open_mcp`."""

    session: SessionDirectory
    emit: Callable[[Event], None]
    settings: McpSettings
    servers: tuple[ServerSpec, ...]
    environment: Mapping[str, str]
    is_listed: bool
    """True if the session has a tool list or a begun conversation, so that its tools are fixed and not listed again."""
    listener: socket.socket | None
    """Listening socket on which the MCP host process accepts tool calls of agents; None if there are no MCP servers."""
    _token: str = attrs.field(factory=lambda: secrets.token_hex(32), init=False, repr=False)
    _host: McpHostProcess | None = attrs.field(default=None, init=False)
    _starts: int = attrs.field(default=0, init=False)
    _is_known: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when the tool list has been stored in the session's directory, or will never be stored."""

    @property
    def access(self) -> McpAccess | None:
        """Address and token with which agents call tools through the MCP host process; None without MCP servers."""
        if self.listener is None:
            return None
        return McpAccess(address=os.fsdecode(self.listener.getsockname()), token=self._token)

    async def wait_listed(self) -> None:
        """Wait until the session's tool list is stored; after a timeout report a failure and store an empty list."""
        if self.listener is None or self.is_listed:
            return
        limit = HOST_START_TIMEOUT + 2 * self.settings.start_seconds
        with trio.move_on_after(limit) as scope:
            await self._is_known.wait()
        if scope.cancelled_caught:
            self._fail(f"no MCP tools in this session, none were listed in {limit:g} s; see its directory {LOGS}/")
            await self._save(McpToolList())

    def start(self) -> None:
        """Start the MCP host process without waiting for it. A failure is reported as an event and not raised."""
        assert self.listener is not None
        self._starts += 1
        self._host = None
        environment = {**self.environment, AGENT_VARIABLE: self._tag}
        with (self._logs() / "host.log").open("ab", buffering=0) as errors:
            try:
                self._host = McpHostProcess.start(self.listener, environment, errors.fileno())
            except OSError as exc:
                self._fail(f"the MCP host process cannot be started, so there are no MCP tools: {exc}")

    async def supervise(self) -> None:
        """Handle the messages of the MCP host process, and restart it after a crash, until cancelled.

        Returns when the process cannot be started, or was restarted `MAX_HOST_RESTARTS` times and ended again.
        """
        while self._host is not None:
            await self._serve_host(self._host)
            status = await self._end(self._host)
            if self._starts > MAX_HOST_RESTARTS:
                break
            log = f"see {LOGS}/host.log in the directory of the session"
            self._fail(f"the MCP host process exited with status {status} and is restarted; {log}")
            self.is_listed = self.is_listed or self._is_known.is_set()
            self.start()
        if self.listener is not None:
            self._fail("no MCP tools from now on, because the MCP host cannot be restarted; resume the session later")
            self.listener.close()
            self.listener = None
        self._is_known.set()

    async def release(self) -> None:
        """Stop the MCP host process and all MCP servers, and wait for their end. Shielded from cancellation."""
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
        """Send the list of MCP servers to the MCP host process, and handle its messages until the connection ends."""
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
            self._fail(f"lost the connection to the MCP host process, which is restarted: {group.exceptions[0]}")

    async def _handle(self, message: HostMessage) -> None:
        match message:
            case ServerStateChanged():
                self.emit(message.event)
            case ServersListed():
                for server in message.servers:
                    for reason in server.left_out:
                        self.emit(Noticed(source=f"MCP server {server.name}", reason=f"not usable by agents: {reason}"))
                await self._save(_listing(message, self.servers))

    async def _save(self, listing: McpToolList) -> None:
        """Store *listing* as the tool list of the session, for agents to read; no-op if a list was stored before."""
        if not self._is_known.is_set():
            try:
                await trio.to_thread.run_sync(listing.save, self.session.directory)
            except OSError as exc:
                self._fail(f"no MCP tools in this session, because their list cannot be stored: {exc}")
            self._is_known.set()

    async def _end(self, host: McpHostProcess) -> int:
        """Stop the MCP host process *host*, kill every process that it started, and return its exit status."""
        status = await host.stop()
        with trio.move_on_after(HOST_EXIT_TIMEOUT):
            await kill_orphans(self.session.id, self._tag)
        return status

    def _fail(self, reason: str) -> None:
        self.emit(LayerFailed(layer="mcp", reason=reason))


def _listing(message: ServersListed, specs: Sequence[ServerSpec]) -> McpToolList:
    """Build the tool list to store: tools with their agent types; instructions of servers that all types may use."""
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
    """Run the MCP servers of *session* until the block ends; none if *settings* is None. The caller runs `supervise`.

    An unusable server is reported with *emit*, and the session continues without it. Enter on the main thread.
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
    """Return the servers of *found* that are approved and can be started; report each other server with *emit*."""
    for problem in found.problems:
        emit(Noticed(source=f"{problem.path}:{problem.line}", reason=problem.reason))
    for server in found.waiting:
        reason = f"the MCP server {server.name} waits for your approval; run `coterie mcp approve {server.name}`"
        emit(Noticed(source=str(server.source), reason=reason))
    if found.approved and importlib.util.find_spec("mcp") is None:
        names = ", ".join(server.name for server in found.approved)
        reason = f"{INSTALL}; not started: {names}"
        emit(Noticed(source=str(found.approved[0].source), reason=reason))
        return ()
    specs = []
    for server in found.approved:
        try:
            specs.append(ServerSpec.of(server.config, os.environ, project, server.kinds))
        except ConfigInvalid as exc:
            reason = f"the MCP server {server.name} is not started: {exc.reason}"
            emit(Noticed(source=str(server.source), reason=reason))
    return tuple(specs)

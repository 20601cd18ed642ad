"""Supervisor of the MCP host process: starts it, replaces it when it dies, and keeps its tool list."""

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
from coterie.agents.events.root_events import McpChanged
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
from coterie.orchestrator.mcp.mcp_servers import KnownServer, McpServers, load_servers
from coterie.orchestrator.supervisor.termination import kill_orphans
from coterie.process_identity import AGENT_VARIABLE, SESSION_VARIABLE, agent_tag
from coterie.session_directory import MAIN, TRANSCRIPT, SessionDirectory

LOGS = "mcp"
"""In the session's directory: what servers, and the process that holds them, write to standard error."""
MAX_HOST_RESTARTS = 5
"""Times. What falls that often falls again."""


@attrs.define(eq=False)
class McpHostSupervisor:
    """The servers of a session, as its root has them. Made by `open_mcp`."""

    session: SessionDirectory
    emit: Callable[[Event], None]
    settings: McpSettings
    servers: tuple[ServerSpec, ...]
    environment: Mapping[str, str]
    is_listed: bool
    """Whether the session knows its tools from an earlier start."""
    listener: socket.socket | None
    """Where agents call; None if there are no servers."""
    _token: str = attrs.field(factory=lambda: secrets.token_hex(32), init=False, repr=False)
    _host: McpHostProcess | None = attrs.field(default=None, init=False)
    _starts: int = attrs.field(default=0, init=False)
    _is_known: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when it is known which tools there are."""

    @property
    def access(self) -> McpAccess | None:
        """What agents are given."""
        if self.listener is None:
            return None
        return McpAccess(address=os.fsdecode(self.listener.getsockname()), token=self._token)

    @property
    def pid(self) -> int | None:
        """The process that holds the servers; None while there is none."""
        return None if self._host is None or self._host.child.status is not None else self._host.child.pid

    async def wait_listed(self) -> None:
        """Return when the tools of the session are known, and in its directory; at the latest when time is up."""
        if self.listener is None or self.is_listed:
            return
        limit = HOST_START_TIMEOUT + 2 * self.settings.start_seconds
        with trio.move_on_after(limit) as scope:
            await self._is_known.wait()
        if scope.cancelled_caught:
            self._fail(f"the servers have not listed their tools within {limit:g} seconds")
            await self._save(McpToolList())

    def start(self) -> None:
        """Start the process, which need not be ready. A start that fails is an event, and there are no servers."""
        assert self.listener is not None
        self._starts += 1
        self._host = None
        environment = {**self.environment, AGENT_VARIABLE: self._tag}
        with (self._logs() / "host.log").open("ab", buffering=0) as errors:
            try:
                self._host = McpHostProcess.start(self.listener, environment, errors.fileno())
            except OSError as exc:
                self._fail(f"the process that holds the servers cannot be started: {exc}")

    async def supervise(self) -> None:
        """Listen to the process, and replace it when it falls, until cancelled. Returns when none can be had."""
        while self._host is not None:
            await self._serve_host(self._host)
            status = await self._end(self._host)
            if self._starts > MAX_HOST_RESTARTS:
                break
            self._fail(f"the process that holds the servers ended with status {status}, and is replaced")
            self.is_listed = self.is_listed or self._is_known.is_set()
            self.start()
        if self.listener is not None:
            self._fail("there are no servers any more: the process that holds them could not be kept")
            self.listener.close()
            self.listener = None
        self._is_known.set()

    async def release(self) -> None:
        """End the process and the servers; returns when nothing of them is left. Is not cancelled."""
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
        """Request the servers, and handle what the process reports of them, until it has gone."""
        request = OpenServers(
            servers=self.servers,
            token=self._token,
            start_seconds=self.settings.start_seconds,
            logs=str(self._logs()),
            is_listed=self.is_listed,
        )
        try:
            async with host.open_channel(request) as channel:
                while (word := await channel.receive()) is not None:
                    await self._handle(word)
        except* ControlLost as group:
            self._fail(f"the process that holds the servers cannot be talked to: {group.exceptions[0]}")

    async def _handle(self, word: HostMessage) -> None:
        match word:
            case ServerStateChanged():
                members = {name: getattr(word, name) for name in word.__struct_fields__}
                self.emit(McpChanged(**members))
            case ServersListed():
                for server in word.servers:
                    for reason in server.left_out:
                        self.emit(Noticed(source=f"MCP server {server.name}", reason=f"cannot be offered: {reason}"))
                await self._save(_listing(word, self.servers))

    async def _save(self, listing: McpToolList) -> None:
        """Keep what the first list says, for good."""
        if not self._is_known.is_set():
            try:
                await trio.to_thread.run_sync(listing.save, self.session.directory)
            except OSError as exc:
                self._fail(f"the list of tools cannot be kept: {exc}")
            self._is_known.set()

    async def _end(self, host: McpHostProcess) -> int:
        """End the process, whatever it takes, and what it has started; its status."""
        status = await host.stop()
        with trio.move_on_after(HOST_EXIT_TIMEOUT):
            await kill_orphans(self.session.id, self._tag)
        return status

    def _fail(self, reason: str) -> None:
        self.emit(LayerFailed(layer="mcp", reason=reason))


def _listing(word: ServersListed, wanted: Sequence[ServerSpec]) -> McpToolList:
    """What is kept of what servers listed: who may use each tool, and what those for everyone say of themselves."""
    kinds = {server.name: server.kinds for server in wanted}
    return McpToolList(
        tools=[
            msgspec.structs.replace(tool, kinds=None if (of := kinds[server.name]) is None else list(of))
            for server in word.servers
            for tool in server.tools
        ],
        instructions={
            server.name: server.instructions
            for server in word.servers
            if server.instructions and server.tools and kinds[server.name] is None
        },
    )


@asynccontextmanager
async def open_mcp(
    session: SessionDirectory,
    settings: McpSettings | None,
    environment: Mapping[str, str],
    tell: Callable[[Event], None],
) -> AsyncIterator[McpHostSupervisor]:
    """Run the MCP servers of *session* while the block runs; none without *settings*. Also run `supervise` in a task.

    What cannot be used is an event, and the session goes on without it. Enter it on the main thread.
    """
    found = McpServers()
    if settings is not None and settings.enabled:
        try:
            found = await trio.to_thread.run_sync(load_servers, session.project)
        except ConfigInvalid as exc:
            tell(Noticed(source=exc.source, reason=exc.reason))
    is_begun, known = await trio.to_thread.run_sync(_existing_servers, session)
    wanted = _wanted(found, session.project, tell)
    if is_begun:
        for server in wanted:
            if server.name not in known:
                reason = "has no tools in this session, which has begun without; a new one has them"
                tell(Noticed(source=f"MCP server {server.name}", reason=reason))
        wanted = tuple(server for server in wanted if server.name in known)
    marked = {**command_environment(environment), SESSION_VARIABLE: session.id}
    listener = open_call_listener() if wanted else None
    post = McpHostSupervisor(session, tell, settings or McpSettings(), wanted, marked, is_begun, listener)
    if wanted:
        post.start()
    try:
        yield post
    finally:
        await post.release()


def _existing_servers(session: SessionDirectory) -> tuple[bool, set[str]]:
    """Whether a conversation of the session has begun, so that its tools cannot change; the servers that have some."""
    listing = load_tool_list(session.directory)
    has_words = (session.directory / "agents" / MAIN / TRANSCRIPT).exists()
    return listing is not None or has_words, {tool.server for tool in (listing or McpToolList()).tools}


def _wanted(found: McpServers, project: Path, tell: Callable[[Event], None]) -> tuple[ServerSpec, ...]:
    """Those of the servers that can be started; of all else it is told why not."""
    for problem in found.problems:
        tell(Noticed(source=f"{problem.path}:{problem.line}", reason=problem.reason))
    for server in found.waiting:
        reason = f"the MCP server {server.name} waits for your approval: `coterie mcp approve {server.name}`"
        tell(Noticed(source=str(server.source), reason=reason))
    if found.approved and importlib.util.find_spec("mcp") is None:
        names = ", ".join(server.name for server in found.approved)
        reason = f"{INSTALL}; left out: {names}"
        tell(Noticed(source=str(found.approved[0].source), reason=reason))
        return ()
    return tuple(wanted for server in found.approved if (wanted := _filled(server, project, tell)) is not None)


def _filled(server: KnownServer, project: Path, tell: Callable[[Event], None]) -> ServerSpec | None:
    try:
        return ServerSpec.of(server.config, os.environ, project, server.kinds)
    except ConfigInvalid as exc:
        tell(Noticed(source=str(server.source), reason=f"the MCP server {server.name} is left out: {exc.reason}"))
        return None

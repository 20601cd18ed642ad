"""Start and stop of an MCP host (process that runs MCP servers), messages with it, and the check `coterie mcp test`."""

import importlib.util
import os
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from coterie.agents.events.root_events import McpChanged
from coterie.agents.mcp.server_config import ServerConfig
from coterie.agents.root_link.channel import SocketChannel, open_channel
from coterie.agents.tools.worker_process import command_environment
from coterie.errors import ConfigInvalid
from coterie.orchestrator.mcp.host_protocol import (
    HostMessage,
    OpenServers,
    ServersListed,
    ServerSpec,
    ServerStateChanged,
    host_message_decoder,
)
from coterie.orchestrator.processes.child_process import ChildProcess, start_module

INSTALL = "MCP servers need the package `mcp`, which is not installed; run `pip install 'coterie[mcp]'`"
NO_ANSWER = "the process that runs MCP servers ended or did not answer in time; try again"
HOST_START_TIMEOUT = 30.0
"""Timeout in seconds for the start of the MCP host (process that runs MCP servers), not including its servers."""
HOST_EXIT_TIMEOUT = 8.0
"""Timeout in seconds for the MCP host (process that runs MCP servers) to stop its servers and exit."""
CALL_BACKLOG = 64
"""Listen queue for agents' tool calls: maximum number of connections that the MCP host process has not accepted yet."""


def open_call_listener() -> socket.socket:
    """Return a listening socket for the tool calls of agents; its random abstract address leaves no file behind."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0coterie-mcp-{secrets.token_hex(16)}")
    listener.listen(CALL_BACKLOG)
    return listener


@attrs.frozen(eq=False)
class McpHostProcess:
    """Handle for one MCP host, the process that runs MCP servers: its process, and the socket for messages to it."""

    child: ChildProcess
    _socket: socket.socket

    @classmethod
    def start(
        cls, listener: socket.socket, environment: Mapping[str, str], stderr: int | None = None
    ) -> "McpHostProcess":
        """Start an MCP host process, which accepts agents on *listener*, without waiting for it. Raises `OSError`."""
        near, far = socket.socketpair()
        with far:
            passed = [far.fileno(), listener.fileno()]
            module, arguments = "coterie.orchestrator.mcp.host", [str(number) for number in passed]
            try:
                child = start_module(module, arguments, passed=passed, environment=environment, stderr=stderr)
            except OSError:
                near.close()
                raise
        return cls(child, near)

    @asynccontextmanager
    async def open_channel(self, request: OpenServers) -> AsyncIterator[SocketChannel[HostMessage]]:
        """Send *request* and yield the channel for replies; after the block the process stops its MCP servers."""
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(self._socket))
        async with open_channel(stream, host_message_decoder) as channel:
            channel.send(request)
            yield channel

    async def stop(self) -> int:
        """Make the process stop its MCP servers and exit; kill it after `HOST_EXIT_TIMEOUT`. Return its exit status."""
        self._socket.close()
        return await self.child.wait_or_kill(HOST_EXIT_TIMEOUT)


@attrs.define(eq=False, kw_only=True)
class ServerCheck:
    """Result of `coterie mcp test` for one MCP server: its tools, or the reason why they could not be listed."""

    name: str
    failure: str = ""
    tools: dict[str, str] = attrs.field(factory=dict)
    """Description of each usable tool of the server, by tool name."""
    left_out: tuple[str, ...] = ()


def check_servers(configs: Sequence[ServerConfig], seconds: float) -> list[ServerCheck]:
    """Start each server, list its tools, each in *seconds*. Raises `OSError`; `ConfigInvalid` without package `mcp`."""
    if importlib.util.find_spec("mcp") is None:
        raise ConfigInvalid("mcp", INSTALL)
    checks = {config.name: ServerCheck(name=config.name) for config in configs}
    specs = []
    for config in configs:
        try:
            specs.append(ServerSpec.of(config, os.environ, Path.cwd()))
            checks[config.name].failure = NO_ANSWER
        except ConfigInvalid as exc:
            checks[config.name].failure = exc.reason
    if specs:
        with tempfile.TemporaryDirectory(prefix="coterie-") as logs:
            trio.run(_check, specs, seconds, Path(logs), checks)
    return list(checks.values())


async def _check(specs: Sequence[ServerSpec], seconds: float, logs: Path, checks: Mapping[str, ServerCheck]) -> None:
    with open_call_listener() as listener:
        host = McpHostProcess.start(listener, command_environment({}))
    token = secrets.token_hex(32)
    request = OpenServers(servers=tuple(specs), token=token, start_seconds=seconds, logs=str(logs), is_listed=False)
    failures: dict[str, str] = {}
    try:
        with trio.move_on_after(HOST_START_TIMEOUT + 2 * seconds):
            async with host.open_channel(request) as channel:
                while (message := await channel.receive()) is not None:
                    match message:
                        case ServerStateChanged(event=McpChanged(state="failed" | "lost") as event):
                            failures[event.server] = event.reason
                        case ServersListed():
                            for server in message.servers:
                                check = checks[server.name]
                                check.failure = failures.get(server.name, server.failure)
                                check.tools = {tool.name: tool.description for tool in server.tools}
                                check.left_out = () if check.failure else server.left_out
                            break
    finally:
        # The channel is closed, which makes the host stop its servers.
        with trio.CancelScope(shield=True):
            await host.child.wait()

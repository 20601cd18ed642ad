"""The MCP host process: its start, its end, and the channel to it; and a check of servers with a host of its own."""

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

INSTALL = "MCP servers need a package that is not installed: pip install 'coterie[mcp]'"
HOST_START_TIMEOUT = 30.0
"""Seconds until the process must have started, on a busy machine; its servers have a timeout of their own."""
HOST_EXIT_TIMEOUT = 8.0
"""Seconds until the process must have stopped its servers, including SIGTERM and SIGKILL."""
CALL_BACKLOG = 64
"""Number of calls that may wait in the listen queue while the process starts."""


def open_call_listener() -> socket.socket:
    """Listen for calls on an abstract socket with a random name, which disappears with the root."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0coterie-mcp-{secrets.token_hex(16)}")
    listener.listen(CALL_BACKLOG)
    return listener


@attrs.frozen(eq=False)
class McpHostProcess:
    """One MCP host process, from start to exit."""

    child: ChildProcess
    _socket: socket.socket

    @classmethod
    def start(
        cls, listener: socket.socket, environment: Mapping[str, str], stderr: int | None = None
    ) -> "McpHostProcess":
        """Start the process without waiting until it is ready; agents call over *listener*. Raises `OSError`."""
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
        """Send *request*, and receive the replies. When the block ends, the process stops its servers."""
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(self._socket))
        async with open_channel(stream, host_message_decoder) as channel:
            channel.send(request)
            yield channel

    async def stop(self) -> int:
        """Tell the process to stop its servers and exit, kill it after a timeout, and return its status."""
        self._socket.close()
        return await self.child.wait_or_kill(HOST_EXIT_TIMEOUT)


@attrs.define(eq=False, kw_only=True)
class ServerCheck:
    """Result of starting one MCP server for a check."""

    name: str
    failure: str = ""
    tools: dict[str, str] = attrs.field(factory=dict)
    """Descriptions of the server's tools, by tool name."""
    left_out: tuple[str, ...] = ()


def check_servers(configs: Sequence[ServerConfig], seconds: float) -> list[ServerCheck]:
    """Start each server, and list its tools within *seconds*. Raises `ConfigInvalid` and `OSError`."""
    if importlib.util.find_spec("mcp") is None:
        raise ConfigInvalid("mcp", INSTALL)
    checks = {config.name: ServerCheck(name=config.name) for config in configs}
    specs = []
    for config in configs:
        try:
            specs.append(ServerSpec.of(config, os.environ, Path.cwd()))
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
    try:
        with trio.move_on_after(HOST_START_TIMEOUT + 2 * seconds):
            async with host.open_channel(request) as channel:
                while (message := await channel.receive()) is not None:
                    match message:
                        case ServerStateChanged(event=McpChanged(state="failed" | "lost") as event):
                            checks[event.server].failure = event.reason
                        case ServersListed():
                            for server in message.servers:
                                checks[server.name].tools = {tool.name: tool.description for tool in server.tools}
                                checks[server.name].left_out = server.left_out
                            break
    finally:
        # The channel is closed, which makes the host stop its servers.
        with trio.CancelScope(shield=True):
            await host.child.wait()

"""The MCP host process: its start, its end, and the channel over which the root sends it the list of servers."""

import secrets
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import attrs
import trio

from coterie.agents.root_link.channel import SocketChannel, open_channel
from coterie.orchestrator.mcp.host_protocol import HostMessage, OpenServers, host_message_decoder
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

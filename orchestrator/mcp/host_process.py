"""MCP host process: its start, and the channel by which it is told which servers to run."""

import secrets
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import attrs
import trio

from coterie.agents.root_link.channel import SocketChannel, open_channel
from coterie.orchestrator.mcp.host_protocol import HostMessage, OpenServers, host_message_decoder
from coterie.orchestrator.processes.child_process import ChildProcess, start_module

MCP_HOST_MODULE = "coterie.orchestrator.mcp.host"
INSTALL = "MCP servers need a package that is not installed: pip install 'coterie[mcp]'"
HOST_START_TIMEOUT = 30.0
"""Seconds in which the process is there, on the busiest machine; its servers have their own limit beyond that."""
HOST_EXIT_TIMEOUT = 8.0
"""Seconds in which it has stopped its servers: their input closed, asked, killed."""
CALL_BACKLOG = 64
"""Calls that may wait for a process that is just started."""


def open_call_listener() -> socket.socket:
    """Listen for calls under a name in no directory that nobody else can have: none is left of a killed root."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0coterie-mcp-{secrets.token_hex(16)}")
    listener.listen(CALL_BACKLOG)
    return listener


@attrs.frozen(eq=False)
class McpHostProcess:
    """One process that holds servers, from its start to its end."""

    child: ChildProcess
    _socket: socket.socket

    @classmethod
    def start(
        cls, listener: socket.socket, environment: Mapping[str, str], stderr: int | None = None
    ) -> "McpHostProcess":
        """Start the process, which need not be ready; calls come to *listener*. Raises `OSError`."""
        near, far = socket.socketpair()
        with far:
            passed = [far.fileno(), listener.fileno()]
            arguments = [str(number) for number in passed]
            try:
                child = start_module(MCP_HOST_MODULE, arguments, passed=passed, environment=environment, stderr=stderr)
            except OSError:
                near.close()
                raise
        return cls(child, near)

    @asynccontextmanager
    async def open_channel(self, request: OpenServers) -> AsyncIterator[SocketChannel[HostMessage]]:
        """Send *request*, and receive what becomes of it. The process stops its servers when the block has ended."""
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(self._socket))
        async with open_channel(stream, host_message_decoder) as channel:
            channel.send(request)
            yield channel

    async def stop(self) -> int:
        """Let the process stop its servers and end, kill it if it does not, and return its status."""
        self._socket.close()
        return await self.child.wait_or_kill(HOST_EXIT_TIMEOUT)

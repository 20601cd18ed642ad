"""Main module of the MCP host, the process that runs the MCP servers of one session and calls their tools for agents.

Arguments: descriptors of the socket to the root (supervisor), whose closing ends the host, and of the agents' listener.
"""

import hmac
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import msgspec
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.mcp.messages import FRAME_LIMIT, CallFailed, CallTool, KeepConnection, ToolCalled, request_decoder
from coterie.agents.root_link.channel import open_channel
from coterie.agents.root_link.wire_format import WireMessage
from coterie.framing import PeerInvalid, read_frame, write_frame
from coterie.mailbox.transports.bridge.socket_path import check_uid, read_credentials
from coterie.orchestrator.mcp.host.server_connection import McpConnection, ServerGone, ToolListFailed
from coterie.orchestrator.mcp.host.tool_conversion import usable_tools
from coterie.orchestrator.mcp.host_protocol import (
    ListedServer,
    OpenServers,
    ServersListed,
    ServerSpec,
    root_request_decoder,
)
from coterie.orchestrator.processes.linux import set_title


@attrs.define(eq=False)
class ConnectionPool:
    """Connections to MCP servers, opened when needed: one per shared server, one per agent for an unshared server."""

    request: OpenServers
    nursery: trio.Nursery
    send: Callable[[WireMessage], None]
    _connections: dict[tuple[str, str | None], McpConnection] = attrs.field(factory=dict, init=False)

    async def list_all(self) -> ServersListed:
        """Connect to all servers concurrently, return their tools (none on failure), then disconnect unshared ones."""
        listed: dict[str, ListedServer] = {}
        async with trio.open_nursery() as nursery:
            for server in self.request.servers:
                nursery.start_soon(self._list, server, listed)
        return ServersListed(servers=tuple(listed[server.name] for server in self.request.servers))

    async def call(self, request: CallTool) -> ToolCalled | CallFailed:
        """Call a tool of an MCP server for an agent; return its result, or the reason why there is no result."""
        server = next((server for server in self.request.servers if server.name == request.server), None)
        if server is None:
            return CallFailed(reason=f"The MCP server {request.server} is not configured now. Continue without it.")
        arguments = msgspec.json.decode(request.arguments, type=dict[str, object])
        connection = self._connection(server, None if server.config.is_shared else request.agent)
        return await connection.call(request.tool, arguments, request.seconds)

    def release(self, agent: str) -> None:
        """Close the connections that only *agent* uses, which also stops the server processes behind them."""
        for key in [key for key in self._connections if key[1] == agent]:
            self._connections.pop(key).scope.cancel()

    async def _list(self, server: ServerSpec, listed: dict[str, ListedServer]) -> None:
        connection = self._connection(server, None)
        try:
            listed[server.name] = usable_tools(server.name, *await connection.tools())
        except ServerGone:
            listed[server.name] = ListedServer(name=server.name)  # already reported by the connection
        except ToolListFailed as exc:
            left_out = (f"all of its tools: {exc}",)
            listed[server.name] = ListedServer(name=server.name, left_out=left_out, failure=str(exc))
        if not server.config.is_shared:
            # Each agent gets a connection of its own on its first call.
            self._connections.pop((server.name, None)).scope.cancel()

    def _connection(self, server: ServerSpec, agent: str | None) -> McpConnection:
        key = (server.name, agent)
        if key not in self._connections:
            self._connections[key] = connection = McpConnection(
                server=server,
                limit=self.request.start_seconds,
                environment=dict(os.environ),
                log=Path(self.request.logs) / f"{server.name}.log",
                send=self.send,
                owner=agent,
            )
            self.nursery.start_soon(connection.run)
        return self._connections[key]


HELLO_TIMEOUT = 10.0
"""Seconds within which an agent that connects must send its request; otherwise the connection is closed."""


def main() -> None:
    """Run the MCP servers of one session until the root (supervisor process) closes its socket or dies."""
    root_socket, call_socket = (socket.socket(fileno=int(argument)) for argument in sys.argv[1:])
    set_title("coterie mcp host")
    trio.run(_serve, root_socket, call_socket)


async def _serve(root_socket: socket.socket, call_socket: socket.socket) -> None:
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(root_socket))
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(call_socket))
    async with open_channel(stream, root_request_decoder) as channel:
        request = await channel.receive()
        if request is None:
            return
        async with trio.open_nursery() as nursery:
            pool = ConnectionPool(request, nursery, channel.send)
            nursery.start_soon(partial(trio.serve_listeners, partial(_serve_agent, pool), [listener]))
            if not request.is_listed:
                channel.send(await pool.list_all())
            while await channel.receive() is not None:
                pass
            nursery.cancel_scope.cancel()


async def _serve_agent(pool: ConnectionPool, stream: trio.SocketStream) -> None:
    """Handle one request: call a tool, or wait until an agent disconnects and stop the servers that only it uses."""
    async with stream:
        try:
            check_uid(read_credentials(stream))
            with trio.fail_after(HELLO_TIMEOUT):
                frame = await read_frame(stream, FRAME_LIMIT)
            if frame is None:
                return
            request = request_decoder.decode(frame)
            # Processes started by an agent can connect too, but do not know the token.
            if not hmac.compare_digest(request.token.encode(), pool.request.token.encode()):
                return
            if isinstance(request, KeepConnection):
                await _wait_for_end(stream)
                pool.release(request.agent)
            else:
                await _call(pool, request, stream)
        except (OSError, PeerInvalid, ControlLost, msgspec.DecodeError, trio.TooSlowError, trio.BrokenResourceError):
            return


async def _call(pool: ConnectionPool, request: CallTool, stream: trio.SocketStream) -> None:
    """Call the tool of *request* and write the reply to *stream*; cancel the call if the agent closes *stream*."""
    answer = b""
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            await _wait_for_end(stream)
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        answer = msgspec.json.encode(await pool.call(request))
        nursery.cancel_scope.cancel()
    if len(answer) > FRAME_LIMIT:
        reason = f"The MCP server {request.server} replied with over {FRAME_LIMIT:,} bytes. Call it for less data."
        answer = msgspec.json.encode(CallFailed(reason=reason))
    if answer:
        await write_frame(stream, answer)


async def _wait_for_end(stream: trio.SocketStream) -> None:
    try:
        while await stream.receive_some():
            pass
    except trio.BrokenResourceError:
        return


if __name__ == "__main__":
    main()

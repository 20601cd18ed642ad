"""Program of the MCP host process; its arguments are two descriptors: the root's socket and the listener.

It ends with the root: when that closes the line, or is killed.
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
    """The connections, each owned by a task of *nursery*."""

    request: OpenServers
    nursery: trio.Nursery
    send: Callable[[WireMessage], None]
    _connections: dict[tuple[str, str | None], McpConnection] = attrs.field(factory=dict, init=False)

    async def list_all(self) -> ServersListed:
        """Connect all servers at once, and hear what tools they have; a server that fails has none."""
        listed: dict[str, ListedServer] = {}

        async def list_one(server: ServerSpec) -> None:
            listed[server.name] = await self._list(server)

        async with trio.open_nursery() as nursery:
            for server in self.request.servers:
                nursery.start_soon(list_one, server)
        return ServersListed(servers=tuple(listed[server.name] for server in self.request.servers))

    async def call(self, question: CallTool) -> ToolCalled | CallFailed:
        """Make a call for an agent."""
        server = next((server for server in self.request.servers if server.name == question.server), None)
        if server is None:
            return CallFailed(reason=f"The MCP server {question.server} is not configured in this run of the session.")
        arguments = msgspec.json.decode(question.arguments, type=dict[str, object])
        connection = self._connection(server, None if server.is_shared else question.agent)
        return await connection.call(question.tool, arguments, question.seconds)

    def release(self, agent: str) -> None:
        """Close what *agent* had for itself."""
        for key in [key for key in self._connections if key[1] == agent]:
            self._connections.pop(key).scope.cancel()

    async def _list(self, server: ServerSpec) -> ListedServer:
        connection = self._connection(server, None)
        found = ListedServer(name=server.name)
        try:
            found = usable_tools(server.name, *await connection.tools())
        except ServerGone:
            pass  # which is told already
        except ToolListFailed as exc:
            found = ListedServer(name=server.name, left_out=(f"its list of tools: {exc}",))
        if not server.is_shared:
            # Each agent gets its own when it first calls.
            self._connections.pop((server.name, None)).scope.cancel()
        return found

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
"""Seconds in which whoever connects has said what it wants."""


def main() -> None:
    """Hold the servers of one session, and exit when the root says so."""
    line, door = (socket.socket(fileno=int(argument)) for argument in sys.argv[1:])
    set_title("coterie mcp host")
    trio.run(_serve, line, door)


async def _serve(near: socket.socket, door: socket.socket) -> None:
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(near))
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(door))
    async with open_channel(stream, root_request_decoder) as line:
        order = await line.receive()
        if order is None:
            return
        async with trio.open_nursery() as nursery:
            pool = ConnectionPool(order, nursery, line.send)
            nursery.start_soon(partial(trio.serve_listeners, partial(_serve_agent, pool), [listener]))
            if not order.is_listed:
                line.send(await pool.list_all())
            while await line.receive() is not None:
                pass
            nursery.cancel_scope.cancel()


async def _serve_agent(pool: ConnectionPool, stream: trio.SocketStream) -> None:
    """Serve one connection of an agent. Whoever has gone is not told."""
    async with stream:
        try:
            check_uid(read_credentials(stream))
            with trio.fail_after(HELLO_TIMEOUT):
                frame = await read_frame(stream, FRAME_LIMIT)
            if frame is None:
                return
            question = request_decoder.decode(frame)
            # What an agent starts may connect as well, but was not told the token.
            if not hmac.compare_digest(question.token.encode(), pool.request.token.encode()):
                return
            if isinstance(question, KeepConnection):
                await _wait_for_end(stream)
                pool.release(question.agent)
            else:
                await _call(pool, question, stream)
        except (OSError, PeerInvalid, ControlLost, msgspec.DecodeError, trio.TooSlowError, trio.BrokenResourceError):
            return


async def _call(pool: ConnectionPool, question: CallTool, stream: trio.SocketStream) -> None:
    """Make the call, unless the agent closes the connection meanwhile."""
    answer = b""
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            await _wait_for_end(stream)
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        answer = msgspec.json.encode(await pool.call(question))
        nursery.cancel_scope.cancel()
    if len(answer) > FRAME_LIMIT:
        reason = f"The MCP server {question.server} answered with {len(answer):,} bytes, which is too much."
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

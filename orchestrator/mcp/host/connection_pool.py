"""Connections of the MCP host: one for each server, and one for each agent with an unshared server."""

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import msgspec
import trio

from coterie.agents.mcp.messages import CallFailed, CallTool, ToolCalled
from coterie.agents.root_link.wire_format import WireMessage
from coterie.orchestrator.mcp.host.server_connection import McpConnection, ServerGone, ToolListFailed
from coterie.orchestrator.mcp.host.tool_conversion import usable_tools
from coterie.orchestrator.mcp.host_protocol import ListedServer, OpenServers, ServersListed, ServerSpec


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

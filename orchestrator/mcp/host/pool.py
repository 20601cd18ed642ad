"""All connections of a session: one for each server, and one for each agent with a server that cannot be shared."""

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import msgspec
import trio

from coterie.agents.control.word import Word
from coterie.agents.mcp.words import CallTool, NotCalled, ToolCalled
from coterie.orchestrator.mcp.host.connection import Connection, NoList, ServerGone
from coterie.orchestrator.mcp.host.offering import offered
from coterie.orchestrator.mcp.words import Listed, ListedServer, OpenServers, Wanted


@attrs.define(eq=False)
class Pool:
    """The connections, each owned by a task of *nursery*."""

    order: OpenServers
    nursery: trio.Nursery
    say: Callable[[Word], None]
    _connections: dict[tuple[str, str | None], Connection] = attrs.field(factory=dict, init=False)

    async def list_all(self) -> Listed:
        """Connect all servers at once, and hear what tools they have; a server that fails has none."""
        listed: dict[str, ListedServer] = {}

        async def list_one(server: Wanted) -> None:
            listed[server.name] = await self._list(server)

        async with trio.open_nursery() as nursery:
            for server in self.order.servers:
                nursery.start_soon(list_one, server)
        return Listed(servers=tuple(listed[server.name] for server in self.order.servers))

    async def call(self, question: CallTool) -> ToolCalled | NotCalled:
        """Make a call for an agent."""
        server = next((server for server in self.order.servers if server.name == question.server), None)
        if server is None:
            return NotCalled(reason=f"The MCP server {question.server} is not configured in this run of the session.")
        arguments = msgspec.json.decode(question.arguments, type=dict[str, object])
        connection = self._connection(server, None if server.is_shared else question.agent)
        return await connection.call(question.tool, arguments, question.seconds)

    def release(self, agent: str) -> None:
        """Close what *agent* had for itself."""
        for key in [key for key in self._connections if key[1] == agent]:
            self._connections.pop(key).scope.cancel()

    async def _list(self, server: Wanted) -> ListedServer:
        connection = self._connection(server, None)
        found = ListedServer(name=server.name)
        try:
            found = offered(server.name, *await connection.tools())
        except ServerGone:
            pass  # which is told already
        except NoList as exc:
            found = ListedServer(name=server.name, left_out=(f"its list of tools: {exc}",))
        if not server.is_shared:
            # Each agent gets its own when it first calls.
            self._connections.pop((server.name, None)).scope.cancel()
        return found

    def _connection(self, server: Wanted, agent: str | None) -> Connection:
        key = (server.name, agent)
        if key not in self._connections:
            self._connections[key] = connection = Connection(
                server=server,
                limit=self.order.start_seconds,
                environment=dict(os.environ),
                log=Path(self.order.logs) / f"{server.name}.log",
                say=self.say,
                owner=agent,
            )
            self.nursery.start_soon(connection.run)
        return self._connections[key]

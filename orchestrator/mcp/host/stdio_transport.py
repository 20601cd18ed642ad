"""Transport of MCP messages over the pipes of a server process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio
import attrs
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from coterie.orchestrator.mcp.host.server_process import ServerProcess

LONGEST_MESSAGE = 32 * 1024 * 1024
"""Longest line, in bytes."""
MAX_OTHER_LINES = 1_000
"""Number of lines in one connection that may be other text than messages, such as a greeting."""

ReceivedItem: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[MemoryObjectReceiveStream[ReceivedItem], MemoryObjectSendStream[SessionMessage]]


@attrs.define(eq=False)
class StdioTransport:
    """The message streams of a stdio server."""

    _process: ServerProcess
    problem: str = ""
    """Protocol violation of the server, after which its output is no longer read."""
    is_over: trio.Event = attrs.field(factory=trio.Event)
    """Set when the output is no longer read."""
    _other_lines: int = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Streams]:
        """Open the message streams in the form that the MCP package expects, until the block ends."""
        received_send, received = anyio.create_memory_object_stream[ReceivedItem](0)
        outgoing, outgoing_receive = anyio.create_memory_object_stream[SessionMessage](0)
        async with received, outgoing, trio.open_nursery() as nursery:
            nursery.start_soon(self._receive, received_send)
            nursery.start_soon(self._send, outgoing_receive)
            yield received, outgoing
            nursery.cancel_scope.cancel()

    async def _send(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with outgoing:
            async for message in outgoing:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await self._process.stdin.send_all(text.encode() + b"\n")
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return  # the server closed its input; the connection finds out

    async def _receive(self, received: MemoryObjectSendStream[ReceivedItem]) -> None:
        async with received:
            try:
                async for line in self._lines():
                    if (message := self._read(line)) is not None:
                        await received.send(message)
                    if self.problem:
                        break
            except (trio.BrokenResourceError, trio.ClosedResourceError, anyio.BrokenResourceError):
                pass  # closed by the server or by this process
            finally:
                self.is_over.set()

    async def _lines(self) -> AsyncIterator[bytes]:
        gathered = bytearray()
        async for chunk in self._process.stdout:
            begin = len(gathered)
            gathered += chunk
            while (end := gathered.find(b"\n", begin)) >= 0:
                yield bytes(gathered[:end])
                del gathered[: end + 1]
                begin = 0
            if len(gathered) > LONGEST_MESSAGE:
                self.problem = f"it wrote a line of over {LONGEST_MESSAGE // 1024**2} MB"
                return

    def _read(self, line: bytes) -> SessionMessage | None:
        if not line.strip():
            return None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self._other_lines += 1
            if self._other_lines > MAX_OTHER_LINES:
                self.problem = f"it wrote over {MAX_OTHER_LINES:,} lines to standard output that are not messages"
            return None

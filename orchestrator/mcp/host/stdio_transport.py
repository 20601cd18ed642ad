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
"""Bytes of one line."""
NO_MESSAGES = 1_000
"""Lines that are no messages, in one connection: some servers greet people there, but none goes on and on."""

ReceivedItem: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[MemoryObjectReceiveStream[ReceivedItem], MemoryObjectSendStream[SessionMessage]]


@attrs.define(eq=False)
class StdioTransport:
    """What goes to a server and comes from it."""

    _process: ServerProcess
    problem: str = ""
    """Why nothing more can be heard, if the server is at fault."""
    is_over: trio.Event = attrs.field(factory=trio.Event)
    """Set when nothing more is heard."""
    _strange: int = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Streams]:
        """Carry messages until the block ends, as the package wants them carried."""
        heard, hearing = anyio.create_memory_object_stream[ReceivedItem](0)
        saying, said = anyio.create_memory_object_stream[SessionMessage](0)
        async with hearing, saying, trio.open_nursery() as nursery:
            nursery.start_soon(self._receive, heard)
            nursery.start_soon(self._send, said)
            yield hearing, saying
            nursery.cancel_scope.cancel()

    async def _send(self, said: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with said:
            async for message in said:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await self._process.stdin.send_all(text.encode() + b"\n")
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return  # it has ended, or closed its input: whoever waits for its end finds out

    async def _receive(self, heard: MemoryObjectSendStream[ReceivedItem]) -> None:
        async with heard:
            try:
                async for line in self._lines():
                    if (message := self._read(line)) is not None:
                        await heard.send(message)
                    if self.problem:
                        break
            except (trio.BrokenResourceError, trio.ClosedResourceError, anyio.BrokenResourceError):
                pass  # the end, on its side or on ours
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
                self.problem = f"it wrote a line of over {LONGEST_MESSAGE // 1024**2} MB, which is no message"
                return

    def _read(self, line: bytes) -> SessionMessage | None:
        if not line.strip():
            return None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self._strange += 1
            if self._strange > NO_MESSAGES:
                self.problem = f"it wrote over {NO_MESSAGES:,} lines to standard output that are no messages"
            return None

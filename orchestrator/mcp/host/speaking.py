"""Messages over the pipes of a stdio server: one a line, with an end to patience for what is none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio
import attrs
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp_types import jsonrpc_message_adapter

from coterie.orchestrator.mcp.host.server_process import ServerProcess
from mcp.shared.message import SessionMessage

LONGEST_MESSAGE = 32 * 1024 * 1024
"""Bytes of one line."""
NO_MESSAGES = 1_000
"""Lines that are no messages, in one connection: some servers greet people there, but none goes on and on."""

Heard: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[MemoryObjectReceiveStream[Heard], MemoryObjectSendStream[SessionMessage]]


@attrs.define(eq=False)
class Speech:
    """What goes to a server and comes from it."""

    _process: ServerProcess
    trouble: str = ""
    """Why nothing more can be heard, if the server is at fault."""
    is_over: trio.Event = attrs.field(factory=trio.Event)
    """Set when nothing more is heard."""
    _strange: int = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Streams]:
        """Carry messages until the block ends, as the package wants them carried."""
        heard, hearing = anyio.create_memory_object_stream[Heard](0)
        saying, said = anyio.create_memory_object_stream[SessionMessage](0)
        async with hearing, saying, trio.open_nursery() as nursery:
            nursery.start_soon(self._hear, heard)
            nursery.start_soon(self._say, said)
            yield hearing, saying
            nursery.cancel_scope.cancel()

    async def _say(self, said: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with said:
            async for message in said:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await self._process.stdin.send_all(text.encode() + b"\n")
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return  # it has ended, or closed its input: whoever waits for its end finds out

    async def _hear(self, heard: MemoryObjectSendStream[Heard]) -> None:
        async with heard:
            try:
                async for line in self._lines():
                    if (message := self._read(line)) is not None:
                        await heard.send(message)
                    if self.trouble:
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
                self.trouble = f"it wrote a line of over {LONGEST_MESSAGE // 1024**2} MB, which is no message"
                return

    def _read(self, line: bytes) -> SessionMessage | None:
        if not line.strip():
            return None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self._strange += 1
            if self._strange > NO_MESSAGES:
                self.trouble = f"it wrote over {NO_MESSAGES:,} lines to standard output that are no messages"
            return None

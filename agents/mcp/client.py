"""MCP client of one agent: calls the tools of servers in the MCP host process."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import msgspec
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.mcp.messages import FRAME_LIMIT, CallFailed, CallTool, KeepConnection, ToolCalled, reply_decoder
from coterie.framing import PeerInvalid, read_frame, write_frame
from coterie.mailbox.transports.bridge.socket_path import check_uid, read_credentials


@attrs.frozen(kw_only=True)
class McpAccess:
    """How an agent reaches the servers of its session; passed over sockets, and in no environment."""

    address: str
    token: str = attrs.field(repr=False)


@attrs.define(eq=False)
class McpClient:
    """Calls tools for one agent. Made by `open_mcp_client`; may be used by several tasks at once."""

    agent: str
    access: McpAccess | None
    """None where the session has no servers, or none any more."""
    seconds: float
    """How long a call may take."""
    _presence: trio.SocketStream | None = None

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> ToolCalled:
        """What *server* answers. Cancelled, the call is given up there too. Raises `ToolFailed`."""
        if self.access is None:
            raise ToolFailed(f"The MCP server {server} is not connected in this run of the session.")
        await self._hold_connection(self.access)
        question = CallTool(
            token=self.access.token,
            agent=self.agent,
            server=server,
            tool=tool,
            arguments=msgspec.Raw(msgspec.json.encode(arguments)),
            seconds=self.seconds,
        )
        try:
            async with await _connect(self.access.address) as stream:
                await write_frame(stream, msgspec.json.encode(question))
                frame = await read_frame(stream, FRAME_LIMIT)
        except (OSError, PeerInvalid, trio.BrokenResourceError) as exc:
            raise ToolFailed(f"The MCP server {server} cannot be reached: {exc}") from exc
        if frame is None:  # whoever takes its place does not know us
            await self.close()
        return _read(frame, server)

    async def _hold_connection(self, access: McpAccess) -> None:
        """Let the servers know until when they are wanted: this connection ends with us, however we end."""
        if self._presence is None:
            with contextlib.suppress(OSError, PeerInvalid, trio.BrokenResourceError):  # the call finds out too
                stream = await _connect(access.address)
                if self._presence is not None:  # another call was faster
                    await trio.aclose_forcefully(stream)
                    return
                self._presence = stream
                await write_frame(stream, msgspec.json.encode(KeepConnection(token=access.token, agent=self.agent)))

    async def close(self) -> None:
        """Say that nothing is wanted any more."""
        if self._presence is not None:
            presence, self._presence = self._presence, None
            await trio.aclose_forcefully(presence)


@asynccontextmanager
async def open_mcp_client(agent: str, access: McpAccess | None, seconds: float) -> AsyncIterator[McpClient]:
    """Call tools for *agent* until the block ends; what servers have for it alone is then closed."""
    caller = McpClient(agent, access, seconds)
    try:
        yield caller
    finally:
        await caller.close()


async def _connect(address: str) -> trio.SocketStream:
    """Raises `OSError`, and `PeerInvalid` if another user's process listens there."""
    sock = trio.socket.socket(trio.socket.AF_UNIX)
    try:
        await sock.connect(address)
        stream = trio.SocketStream(sock)
        check_uid(read_credentials(stream))
    except BaseException:
        sock.close()
        raise
    return stream


def _read(frame: bytes | None, server: str) -> ToolCalled:
    if frame is None:
        raise ToolFailed(
            f"The process that holds the MCP servers ended in the middle of this call of {server}. "
            "Nobody knows whether the call was carried out; it is started again for the next one."
        )
    answer = reply_decoder.decode(frame)
    if isinstance(answer, CallFailed):
        raise ToolFailed(answer.reason)
    return answer

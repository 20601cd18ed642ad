"""MCP client of one agent: calls tools of MCP servers through the MCP host, the process that runs the servers."""

import contextlib
from collections.abc import Mapping
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
    """Socket address and token of the MCP host, which runs the MCP servers; not passed by environment variables."""

    address: str
    token: str = attrs.field(repr=False)


@attrs.define(eq=False)
class McpClient:
    """Calls MCP tools for one agent; tasks may use it concurrently. Close it when the agent ends."""

    agent: str
    access: McpAccess | None
    """Address and token of the MCP host; None if the session has no MCP servers."""
    seconds: float
    """Timeout of one tool call, in seconds."""
    _lifetime: trio.SocketStream | None = None

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> ToolCalled:
        """Call *tool* of the MCP server *server* and return its result, which may be an error of the tool.

        Cancellation also cancels the call in the MCP host. Raises `ToolFailed` if the server gives no result.
        """
        if self.access is None:
            raise ToolFailed(
                f"The MCP server {server} is not connected in this run of the session. Continue without its tools."
            )
        await self._hold_connection(self.access)
        request = CallTool(
            token=self.access.token,
            agent=self.agent,
            server=server,
            tool=tool,
            arguments=msgspec.Raw(msgspec.json.encode(arguments)),
            seconds=self.seconds,
        )
        try:
            async with await _connect(self.access.address) as stream:
                await write_frame(stream, msgspec.json.encode(request))
                frame = await read_frame(stream, FRAME_LIMIT)
        except (OSError, PeerInvalid, trio.BrokenResourceError) as exc:
            raise ToolFailed(
                f"The MCP server {server} cannot be reached: {exc}. It is unknown whether the call was executed. Check "
                "its effect, then repeat the call or continue without the tools of this server."
            ) from exc
        if frame is None:  # A new host process does not know this agent, so the connection is opened again.
            await self.aclose()
            raise ToolFailed(
                f"The MCP host process ended in the middle of this call of {server}. It is unknown whether the call "
                "was executed: check its effect before you repeat the call. The next call starts the host again."
            )
        answer = reply_decoder.decode(frame)
        if isinstance(answer, CallFailed):
            raise ToolFailed(answer.reason)
        return answer

    async def _hold_connection(self, access: McpAccess) -> None:
        """Open a connection whose end, even after a crash, tells the MCP host that this agent has ended."""
        if self._lifetime is None:
            # The call itself reports this error.
            with contextlib.suppress(OSError, PeerInvalid, trio.BrokenResourceError):
                stream = await _connect(access.address)
                if self._lifetime is not None:  # A concurrent call has opened the connection.
                    await trio.aclose_forcefully(stream)
                    return
                self._lifetime = stream
                await write_frame(stream, msgspec.json.encode(KeepConnection(token=access.token, agent=self.agent)))

    async def aclose(self) -> None:
        """Close the connection to the MCP host, which then closes the servers that only this agent uses."""
        if self._lifetime is not None:
            lifetime, self._lifetime = self._lifetime, None
            await trio.aclose_forcefully(lifetime)


async def _connect(address: str) -> trio.SocketStream:
    """Connect to the socket of the MCP host. Raises `OSError`, and `PeerInvalid` if another user listens there."""
    sock = trio.socket.socket(trio.socket.AF_UNIX)
    try:
        await sock.connect(address)
        stream = trio.SocketStream(sock)
        check_uid(read_credentials(stream))
    except BaseException:
        sock.close()
        raise
    return stream

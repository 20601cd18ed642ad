"""Messages between an agent and the MCP host, the process that runs the MCP servers of a session."""

import msgspec

from coterie.agents.root_link.wire_format import WireMessage

FRAME_LIMIT = 32 * 1024 * 1024
"""Maximum size of one message between an agent and the MCP host (runs the MCP servers), in bytes, with images."""


class CallTool(WireMessage, tag="call_tool", frozen=True):
    """Request of an agent to the MCP host: call a tool. Closing the connection before the reply cancels the call."""

    token: str
    """Secret of the session that proves the sender is an agent; programs that an agent starts do not have it."""
    agent: str
    server: str
    tool: str
    arguments: msgspec.Raw
    seconds: float
    """Timeout of the call, in seconds."""


class KeepConnection(WireMessage, tag="stay", frozen=True):
    """Request of an agent: when it closes this connection, stop the MCP servers that only this agent uses."""

    token: str
    agent: str


class ToolImage(msgspec.Struct, frozen=True, kw_only=True):
    """Image in the result of a tool call, as the server sent it."""

    media_type: str
    data: str
    """Content of the image, in base64."""


class ToolCalled(WireMessage, tag="tool_called", frozen=True):
    """Reply to `CallTool`: the result of the tool call."""

    text: str
    pictures: list[ToolImage] = msgspec.field(default_factory=list)
    is_error: bool = False


class CallFailed(WireMessage, tag="not_called", frozen=True):
    """Reply to `CallTool` if there is no result from the server, with the reason as a text for the model."""

    reason: str


HostRequest = CallTool | KeepConnection
HostReply = ToolCalled | CallFailed

request_decoder: msgspec.json.Decoder[HostRequest] = msgspec.json.Decoder(HostRequest)
reply_decoder: msgspec.json.Decoder[HostReply] = msgspec.json.Decoder(HostReply)

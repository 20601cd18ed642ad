"""Messages between an agent and the MCP host process."""

import msgspec

from coterie.agents.root_link.wire_format import WireMessage

FRAME_LIMIT = 32 * 1024 * 1024
"""Maximum size of a request or a reply, in bytes, including images."""


class CallTool(WireMessage, tag="call_tool", frozen=True):
    """Request to call a tool. Closing the connection before the reply cancels the call."""

    token: str
    """Token that every agent of the session has, but no program that an agent starts."""
    agent: str
    server: str
    tool: str
    arguments: msgspec.Raw
    seconds: float
    """Timeout of the call, in seconds."""


class KeepConnection(WireMessage, tag="stay", frozen=True):
    """Request to keep the servers of this agent until it closes this connection."""

    token: str
    agent: str


class ToolImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image, as the server sent it."""

    media_type: str
    data: str
    """Content in base64."""


class ToolCalled(WireMessage, tag="tool_called", frozen=True):
    """Result of a tool call."""

    text: str
    pictures: list[ToolImage] = msgspec.field(default_factory=list)
    is_error: bool = False


class CallFailed(WireMessage, tag="not_called", frozen=True):
    """Reply to a call that the server did not answer, with the reason."""

    reason: str


HostRequest = CallTool | KeepConnection
HostReply = ToolCalled | CallFailed

request_decoder: msgspec.json.Decoder[HostRequest] = msgspec.json.Decoder(HostRequest)
reply_decoder: msgspec.json.Decoder[HostReply] = msgspec.json.Decoder(HostReply)

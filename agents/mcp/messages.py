"""Messages between an agent and the MCP host process."""

import msgspec

from coterie.agents.root_link.wire_format import WireMessage

FRAME_LIMIT = 32 * 1024 * 1024
"""Bytes of a question or an answer, pictures included."""


class CallTool(WireMessage, tag="call_tool", frozen=True):
    """Call a tool. Whoever closes the connection before the answer does not want it any more."""

    token: str
    """Which every agent of the session has, and nothing that it starts."""
    agent: str
    server: str
    tool: str
    arguments: msgspec.Raw
    seconds: float
    """How long it may take."""


class KeepConnection(WireMessage, tag="stay", frozen=True):
    """Keep what servers have for this agent alone until it closes this connection."""

    token: str
    agent: str


class ToolImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image, as the server has it."""

    media_type: str
    data: str
    """In base64."""


class ToolCalled(WireMessage, tag="tool_called", frozen=True):
    """What the server answered."""

    text: str
    pictures: list[ToolImage] = msgspec.field(default_factory=list)
    is_error: bool = False


class CallFailed(WireMessage, tag="not_called", frozen=True):
    """There is no answer of the server, and why."""

    reason: str


HostRequest = CallTool | KeepConnection
HostReply = ToolCalled | CallFailed

request_decoder: msgspec.json.Decoder[HostRequest] = msgspec.json.Decoder(HostRequest)
reply_decoder: msgspec.json.Decoder[HostReply] = msgspec.json.Decoder(HostReply)

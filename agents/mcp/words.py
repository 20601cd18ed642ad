"""What an agent and the process that holds the servers say to each other: one question on a connection, one answer."""

import msgspec

from coterie.agents.control.word import Word

FRAME_LIMIT = 32 * 1024 * 1024
"""Bytes of a question or an answer, pictures included."""


class CallTool(Word, tag="call_tool", frozen=True):
    """Call a tool. Whoever closes the connection before the answer does not want it any more."""

    token: str
    """Which every agent of the session has, and nothing that it starts."""
    agent: str
    server: str
    tool: str
    arguments: msgspec.Raw
    seconds: float
    """How long it may take."""


class Stay(Word, tag="stay", frozen=True):
    """Keep what servers have for this agent alone until it closes this connection."""

    token: str
    agent: str


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """An image, as the server has it."""

    media_type: str
    data: str
    """In base64."""


class ToolCalled(Word, tag="tool_called", frozen=True):
    """What the server answered."""

    text: str
    pictures: list[Picture] = msgspec.field(default_factory=list)
    is_error: bool = False


class NotCalled(Word, tag="not_called", frozen=True):
    """There is no answer of the server, and why."""

    reason: str


AgentAsks = CallTool | Stay
HostAnswers = ToolCalled | NotCalled

questions: msgspec.json.Decoder[AgentAsks] = msgspec.json.Decoder(AgentAsks)
answers: msgspec.json.Decoder[HostAnswers] = msgspec.json.Decoder(HostAnswers)

"""Protocols through which the context layers read the conversation of an agent, block by block."""

from typing import Literal, Protocol

Role = Literal["user", "assistant", "system"]


class SegmentView(Protocol):
    """One segment of a conversation: a content block such as a text, a tool call or a tool result."""

    @property
    def data(self) -> bytes:
        """The content block as JSON."""
        ...

    @property
    def role(self) -> Role | None:
        """Role of the message that contains the block; None for a tool definition or a part of the system prompt."""
        ...

    @property
    def block_type(self) -> str:
        """The `type` field of the content block."""
        ...

    @property
    def tool_use_id(self) -> str | None:
        """Id of the tool call that a `tool_use` block makes or a `tool_result` block answers; None for other blocks."""
        ...

    @property
    def opens_message(self) -> bool:
        """True if the block is the first of its message."""
        ...


class SegmentViews(Protocol):
    """All segments (content blocks) of a conversation, by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> SegmentView: ...

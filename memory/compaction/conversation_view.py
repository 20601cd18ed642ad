"""Protocols through which the layers read the conversation of an agent."""

from typing import Literal, Protocol

Role = Literal["user", "assistant", "system"]


class SegmentView(Protocol):
    """One block of a conversation."""

    @property
    def data(self) -> bytes:
        """The content block as JSON."""
        ...

    @property
    def role(self) -> Role | None:
        """Role of the message that contains the block; None for tools and system."""
        ...

    @property
    def block_type(self) -> str:
        """The `type` field of the content block."""
        ...

    @property
    def tool_use_id(self) -> str | None:
        """Id of the call that a `tool_use` makes or a `tool_result` answers."""
        ...

    @property
    def opens_message(self) -> bool:
        """True if the block is the first of its message."""
        ...


class SegmentViews(Protocol):
    """All segments of a conversation, by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> SegmentView: ...

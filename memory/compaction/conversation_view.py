"""Protocols for the conversation of an agent, as the layers read it."""

from typing import Literal, Protocol

Role = Literal["user", "assistant", "system"]


class SegmentView(Protocol):
    """One block of a conversation, in its place."""

    @property
    def data(self) -> bytes:
        """The block as JSON."""
        ...

    @property
    def role(self) -> Role | None:
        """Whose message it stands in; None for tools and system."""
        ...

    @property
    def block_type(self) -> str:
        """The type the block names."""
        ...

    @property
    def tool_use_id(self) -> str | None:
        """The call that a `tool_use` makes or a `tool_result` answers."""
        ...

    @property
    def opens_message(self) -> bool:
        """Whether it is the first block of its message."""
        ...


class SegmentViews(Protocol):
    """All segments of a conversation, by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> SegmentView: ...

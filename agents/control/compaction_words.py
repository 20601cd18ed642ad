"""What is said where somebody wants an agent's conversation compacted."""

from coterie.agents.compaction.plan import Pivot, Side
from coterie.agents.control.word import Word
from coterie.agents.conversation.records import Way
from coterie.agents.events import Compacted


class Compact(Word, tag="compact", frozen=True):
    """Compact the conversation, or a part of it. Answered by `Compaction` or `NotCompacted`."""

    call: int = 0
    side: Side | None = None
    """None for the older part of it, as when it is nearly full."""
    message: int = 1
    """With a side: the message that parts what stays from what leaves, counted from 1."""

    @classmethod
    def of(cls, call: int, pivot: Pivot | None) -> "Compact":
        """The word for *pivot*."""
        return cls(call=call) if pivot is None else cls(call=call, side=pivot.side, message=pivot.message)

    def pivot(self) -> Pivot | None:
        """Which part is meant."""
        return None if self.side is None else Pivot(side=self.side, message=self.message)


class Compaction(Word, tag="compaction", frozen=True):
    """It was compacted; the event tells more."""

    call: int
    by: Way
    tokens_before: int
    tokens_after: int
    left: int
    """Messages that are no longer in the conversation."""
    kept: int
    cost_usd: str

    @classmethod
    def of(cls, call: int, told: Compacted) -> "Compaction":
        """The word for what was *told*."""
        members = (name for name in cls.__struct_fields__ if name != "call")
        return cls(call=call, **{name: getattr(told, name) for name in members})


class NotCompacted(Word, tag="not_compacted", frozen=True):
    """It was not, and nothing has changed."""

    call: int
    reason: str
    is_for_user: bool = False
    """Whether what was asked for makes no sense."""

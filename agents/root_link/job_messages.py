"""Messages about jobs for an agent: compaction, extraction and dreaming."""

from typing import Any, Literal

import attrs
import msgspec

from coterie.agents.events.layer_events import Compacted
from coterie.agents.loop.conversation.transcript_records import Way
from coterie.agents.root_link.message import WireMessage

Side = Literal["from", "up_to"]


@attrs.frozen(kw_only=True)
class Pivot:
    """A part of the conversation, by a message: all from it on, or all before it."""

    side: Side
    message: int
    """Counted from 1."""


class CompactJob(WireMessage, tag="compact", frozen=True):
    """Compact the conversation, or a part of it. Answered by `CompactionDone` or `NotCompacted`."""

    call: int = 0
    side: Side | None = None
    """None for the older part of it, as when it is nearly full."""
    message: int = 1
    """With a side: the message that parts what stays from what leaves, counted from 1."""

    @classmethod
    def of(cls, call: int, pivot: Pivot | None) -> "CompactJob":
        """The word for *pivot*."""
        return cls(call=call) if pivot is None else cls(call=call, side=pivot.side, message=pivot.message)

    def pivot(self) -> Pivot | None:
        """Which part is meant."""
        return None if self.side is None else Pivot(side=self.side, message=self.message)


class CompactionDone(WireMessage, tag="compaction", frozen=True):
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
    def of(cls, call: int, told: Compacted) -> "CompactionDone":
        """The word for what was *told*."""
        members = (name for name in cls.__struct_fields__ if name != "call")
        return cls(call=call, **{name: getattr(told, name) for name in members})


class NotCompacted(WireMessage, tag="not_compacted", frozen=True):
    """It was not, and nothing has changed."""

    call: int
    reason: str
    is_for_user: bool = False
    """Whether what was asked for makes no sense."""


class ExtractJob(WireMessage, tag="extract", frozen=True):
    """Take what is worth keeping from the conversation into the memory, however little is new in it."""


class DreamJob(WireMessage, tag="dream", frozen=True):
    """Consolidate the memory."""

    is_forced: bool = False
    """Whether neither the time since the last dream nor the number of sessions matters."""
    is_dry: bool = False
    """Whether the memory stays as it is, and what would change is only kept to be looked at."""
    deletions: Literal["ask", "apply"] = "ask"
    """Whether what takes something away waits for the user."""


OfflineJob = CompactJob | ExtractJob | DreamJob


def parse_offline_job(members: dict[str, Any] | None) -> OfflineJob | None:
    """The chore that was written as JSON, with *members*; None for none. Raises `msgspec.ValidationError`."""
    chore: OfflineJob | None = msgspec.convert(members, OfflineJob | None)
    return chore

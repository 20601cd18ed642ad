"""Messages about jobs for an agent: compaction, extraction and dreaming."""

from typing import Any, Literal

import attrs
import msgspec

from coterie.agents.events.layer_events import Compacted
from coterie.agents.loop.conversation.transcript_records import Way
from coterie.agents.root_link.wire_format import WireMessage, WireRequest

Side = Literal["from", "up_to"]


@attrs.frozen(kw_only=True)
class Pivot:
    """A part of the conversation, by a message: all from it on, or all before it."""

    side: Side
    message: int
    """Counted from 1."""


class CompactionDone(WireMessage, tag="compaction", frozen=True):
    """It was compacted; the event tells more."""

    by: Way
    tokens_before: int
    tokens_after: int
    left: int
    """Messages that are no longer in the conversation."""
    kept: int
    cost_usd: str

    @classmethod
    def of(cls, event: Compacted) -> "CompactionDone":
        """Take the facts from *event*."""
        return cls(**{name: getattr(event, name) for name in cls.__struct_fields__})


AGENT_GONE = "it has ended before that was done"
"""Reason of a compaction that was requested too late."""


class NotCompacted(WireMessage, tag="not_compacted", frozen=True):
    """It was not, and nothing has changed."""

    reason: str
    is_for_user: bool = False
    """Whether what was asked for makes no sense."""


class CompactJob(WireRequest[CompactionDone | NotCompacted], tag="compact", frozen=True):
    """Compacts the conversation, or a part of it."""

    runs_to_end = True
    pivot: Pivot | None = None
    """None for the older part of it, as when it is nearly full."""


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

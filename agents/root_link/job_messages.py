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
    """Part of a conversation relative to one message: everything from this message on, or everything before it."""

    side: Side
    message: int
    """Number of the message, counted from 1."""


class CompactionDone(WireMessage, tag="compaction", frozen=True):
    """Reply to `CompactJob` after a compaction; the event has the details."""

    by: Way
    tokens_before: int
    tokens_after: int
    left: int
    """Number of messages that were removed from the conversation."""
    kept: int
    cost_usd: str

    @classmethod
    def of(cls, event: Compacted) -> "CompactionDone":
        """Create the reply from *event*, the event of the compaction."""
        return cls(**{name: getattr(event, name) for name in cls.__struct_fields__})


AGENT_GONE = "it ended before the compaction"
"""Reason of a compaction request that arrived too late."""


class NotCompacted(WireMessage, tag="not_compacted", frozen=True):
    """Reply to `CompactJob` if nothing was compacted or changed."""

    reason: str
    is_for_user: bool = False
    """True if the user asked for an impossible compaction; False if the compaction itself failed."""


class CompactJob(WireRequest[CompactionDone | NotCompacted], tag="compact", frozen=True):
    """Request to compact the conversation, or a part of it."""

    runs_to_end = True
    pivot: Pivot | None = None
    """Part to compact; None for the older part, as in an automatic compaction."""


class ExtractJob(WireMessage, tag="extract", frozen=True):
    """Job to extract memories from the conversation, even if little in it is new."""


class DreamJob(WireMessage, tag="dream", frozen=True):
    """Job to consolidate the memory."""

    is_forced: bool = False
    """True to ignore the time since the last dream and the number of sessions."""
    is_dry: bool = False
    """True to write a proposal and leave the memory unchanged."""
    deletions: Literal["ask", "apply"] = "ask"
    """"ask" if deletions wait for the approval of the user."""


OfflineJob = CompactJob | ExtractJob | DreamJob


def parse_offline_job(members: dict[str, Any] | None) -> OfflineJob | None:
    """Decode an offline job from JSON *members*; None for None. Raises `msgspec.ValidationError`."""
    job: OfflineJob | None = msgspec.convert(members, OfflineJob | None)
    return job

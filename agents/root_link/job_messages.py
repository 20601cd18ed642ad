"""Messages that request a job of an agent: compaction, extraction of memories, or a dream (memory cleanup)."""

from typing import Any, Literal

import attrs
import msgspec

from coterie.agents.events.layer_events import Compacted
from coterie.agents.loop.conversation.transcript_records import Way
from coterie.agents.root_link.wire_format import WireMessage, WireRequest

Side = Literal["from", "up_to"]


@attrs.frozen(kw_only=True)
class Pivot:
    """Part of a conversation to compact: all messages from a given one on ("from"), or all before it ("up_to")."""

    side: Side
    message: int
    """Number of the given message in the conversation, counted from 1."""


class CompactionDone(WireMessage, tag="compaction", frozen=True):
    """Reply to `CompactJob`: a summary has replaced messages; sizes and cost are those of the `Compacted` event."""

    by: Way
    tokens_before: int
    tokens_after: int
    left: int
    """Number of messages that were removed from the conversation and replaced by the summary."""
    kept: int
    cost_usd: str

    @classmethod
    def of(cls, event: Compacted) -> "CompactionDone":
        """Return the reply with the values of *event*, which the agent has emitted for this compaction."""
        return cls(**{name: getattr(event, name) for name in cls.__struct_fields__})


AGENT_GONE = "the agent ended before the compaction; send it a message to start it, then retry"
"""Reason in `NotCompacted` if the agent ended before it could compact its conversation."""


class NotCompacted(WireMessage, tag="not_compacted", frozen=True):
    """Reply to `CompactJob`: the agent did not compact its conversation, or ended before it could reply."""

    reason: str
    is_for_user: bool = False
    """True if the user must correct the request or a file, such as a message number that does not exist."""


class CompactJob(WireRequest[CompactionDone | NotCompacted], tag="compact", frozen=True):
    """Request to an agent: compact its conversation (replace the older part, or a given part, by a summary)."""

    runs_to_end = True
    pivot: Pivot | None = None
    """Part to replace by a summary; None for the older part, as in an automatic compaction."""


class ExtractJob(WireMessage, tag="extract", frozen=True):
    """Job of an agent: save facts from its conversation as memories now, even if little in it is new."""


class DreamJob(WireMessage, tag="dream", frozen=True):
    """Job of an agent: run a dream, in which a model consolidates the memories of the project."""

    is_forced: bool = False
    """True to run even if the last dream is recent or few sessions followed it; False to refuse the job then."""
    is_dry: bool = False
    """True to change no memory: all changes become a proposal, which waits for the approval of the user."""
    deletions: Literal["ask", "apply"] = "ask"
    """"ask" if deletions from memories wait for the approval of the user; "apply" to make them without asking."""


OfflineJob = CompactJob | ExtractJob | DreamJob


def parse_offline_job(members: dict[str, Any] | None) -> OfflineJob | None:
    """Return the job (compaction, extraction, dream) encoded by *members*; None for None. Raises `ValidationError`."""
    job: OfflineJob | None = msgspec.convert(members, OfflineJob | None)
    return job

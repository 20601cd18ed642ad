"""Jobs and plans of a compaction: the conversation to compact, and the messages that a summary is to replace."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial

import attrs

from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.token_estimate import estimate_block
from coterie.agents.loop.conversation.transcript_records import Trigger, Way
from coterie.agents.loop.model.api_errors import PromptTooLong
from coterie.agents.root_link.job_messages import Pivot
from coterie.memory.compaction.cut_point import Messages, MessageSizes, choose_start, nearest_start, split_messages
from coterie.memory.compaction.result_clearing import deleted_results, kept_size
from coterie.memory.compaction.summary_text import block_text
from coterie.memory.layer_settings import CompactionSettings


@attrs.frozen(kw_only=True)
class CompactionPlan:
    """Plan of a compaction: a summary, and the messages that it replaces, from index *first* to just before *start*."""

    by: Way
    summary: str
    start: int
    first: int = 0
    """Index of the first replaced message; above 0 only if the user selected a part. Earlier messages do not change."""
    cost: Decimal = Decimal(0)
    passed_over: Mapping[str, str] = attrs.field(factory=dict)
    """Reasons why cheaper sources of a summary were not used, by source: `notes`, or `summary` for a model call."""


ALL = "Summarise the whole conversation."
QUOTED = 200
"""Maximum number of characters quoted from a message, to tell the model at which message the summary begins or ends."""


@attrs.frozen(kw_only=True)
class RemovedRange:
    """Messages that a compaction is to remove, from index *first* to just before index *start*."""

    first: int
    start: int
    scope: str
    """Sentence that tells the model which part of the conversation it must summarise."""


@attrs.frozen(kw_only=True)
class CompactionJob:
    """Input of one compaction: the conversation, the reason for compacting it, and the size that it must reach."""

    agent: Agent
    trigger: Trigger
    pivot: Pivot | None
    overflow: PromptTooLong | None
    messages: Messages
    sizes: Sequence[int]
    """Estimated tokens of each message in `messages` if it stays; without thinking, which the model then loses."""
    tokens: int
    """Tokens of the conversation before the compaction, as reported by the API, with an estimate of newer blocks."""
    room: int
    """Maximum number of estimated tokens that the conversation may have after the compaction."""
    settings: CompactionSettings

    @classmethod
    def of(
        cls,
        agent: Agent,
        settings: CompactionSettings,
        trigger: Trigger,
        pivot: Pivot | None = None,
        overflow: PromptTooLong | None = None,
    ) -> "CompactionJob":
        """Create the job for *agent*'s conversation; a size that *overflow* reports lowers the allowed size `room`."""
        messages, gone = split_messages(agent.conversation.segments), deleted_results(agent.conversation.segments)
        tokens, thresholds = agent.meter.tokens(agent.conversation), agent.meter.thresholds
        room = max(thresholds.warn, thresholds.compact * 3 // 4)
        if overflow is not None and overflow.actual is not None:
            # Scale the limit by the ratio between our estimate and the API's count.
            room = min(room, room * tokens // overflow.actual)
        return cls(
            agent=agent,
            trigger=trigger,
            pivot=pivot,
            overflow=overflow,
            messages=messages,
            sizes=MessageSizes(messages, partial(kept_size, count=estimate_block, gone=gone)),
            tokens=tokens,
            room=room,
            settings=settings.within(thresholds.compact),
        )

    def span(self, settings: CompactionSettings | None = None) -> RemovedRange:
        """Choose which messages to remove: older ones, or those that `pivot` selects. Default: the job's *settings*."""
        if self.pivot is None:
            start = choose_start(self.messages, self.sizes, settings or self.settings)
            assert start is not None, "choose_start returns None only for messages that must stay"
            return RemovedRange(first=0, start=start, scope=ALL)
        at = nearest_start(self.messages, self.pivot.message - 1)
        begins = " ".join(block_text(self.messages[at][0].data).split())[:QUOTED] or self.messages[at][0].block_type
        if self.pivot.side == "up_to":
            scope = f"Summarise what comes before the message that begins with {begins!r}; the rest stays."
            return RemovedRange(first=0, start=at, scope=scope)
        scope = f"Summarise what begins with the message {begins!r}; what comes before it stays."
        return RemovedRange(first=at, start=len(self.messages), scope=scope)

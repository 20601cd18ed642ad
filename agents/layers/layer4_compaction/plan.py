"""Compaction jobs and plans: the conversation to compact, and the range that a summary replaces."""

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
    """A summary and the range of messages that it replaces: from *first* up to, but not including, *start*."""

    by: Way
    summary: str
    start: int
    first: int = 0
    """More than 0 only for a manually selected part; earlier messages then keep their bytes and cache entries."""
    cost: Decimal = Decimal(0)
    passed_over: Mapping[str, str] = attrs.field(factory=dict)
    """Reasons why cheaper strategies were not used, by strategy."""


ALL = "Summarise the whole conversation."
QUOTED = 200
"""Characters of a message that are quoted to identify it for the model."""


@attrs.frozen(kw_only=True)
class RemovedRange:
    """The range of messages to remove: from *first* up to, but not including, *start*."""

    first: int
    start: int
    scope: str
    """Description of the range for the model."""


@attrs.frozen(kw_only=True)
class CompactionJob:
    """One compaction: the conversation, the reason, and the size to reach."""

    agent: Agent
    trigger: Trigger
    pivot: Pivot | None
    overflow: PromptTooLong | None
    messages: Messages
    sizes: Sequence[int]
    """Estimated tokens of each message if it stays."""
    tokens: int
    """Tokens of the whole conversation, reported or estimated."""
    room: int
    """Greatest number of estimated tokens after the compaction."""
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
        """Create the job for *agent*'s current conversation."""
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
        """Choose the messages to remove; *settings* override how much stays."""
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

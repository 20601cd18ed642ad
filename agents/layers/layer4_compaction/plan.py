"""Compaction jobs and plans: the conversation to compact, and the range that a summary replaces."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial

import attrs

from coterie.agents.layers.layer4_compaction.summarize import ALL
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.token_estimate import estimate_block
from coterie.agents.loop.conversation.transcript_records import Trigger, Way
from coterie.agents.loop.model.api_errors import PromptTooLong
from coterie.agents.root_link.job_messages import Pivot
from coterie.memory.compaction.cut_point import Messages, MessageSizes, choose_start, nearest_start, split_messages
from coterie.memory.compaction.kept_size import kept_size
from coterie.memory.compaction.result_clearing import deleted_results
from coterie.memory.compaction.summary_text import block_text
from coterie.memory.layer_settings import CompactionSettings


@attrs.frozen(kw_only=True)
class CompactionPlan:
    """A summary, and the messages that it stands for: those from *first* up to *start*."""

    by: Way
    summary: str
    start: int
    first: int = 0
    """More than 0 only when a part was chosen by hand: then what is before keeps its bytes, and its place in the
    cache."""
    cost: Decimal = Decimal(0)
    passed_over: Mapping[str, str] = attrs.field(factory=dict)
    """Why not, by way: those that are cheaper."""


@attrs.frozen
class CompactionSkipped:
    """A way that does not lead anywhere now."""

    reason: str


QUOTED = 200
"""Characters of a message by which the model is told which one is meant."""


@attrs.frozen(kw_only=True)
class RemovedRange:
    """The messages that leave: those from *first* up to *start*."""

    first: int
    start: int
    scope: str
    """The same in words for the model."""


@attrs.frozen(kw_only=True)
class CompactionJob:
    """What is to be compacted, why, and how far."""

    agent: Agent
    trigger: Trigger
    pivot: Pivot | None
    overflow: PromptTooLong | None
    messages: Messages
    sizes: Sequence[int]
    """Tokens that each message would have if it stayed, estimated."""
    tokens: int
    """Of the whole conversation, as far as is known."""
    room: int
    """Tokens that the conversation may have afterwards, estimated."""
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
        """The job of compacting *agent*'s conversation as it is now."""
        messages, gone = split_messages(agent.conversation.segments), deleted_results(agent.conversation.segments)
        tokens, thresholds = agent.meter.tokens(agent.conversation), agent.meter.thresholds
        room = max(thresholds.warn, thresholds.compact * 3 // 4)
        if overflow is not None and overflow.actual is not None:
            # The API counts more than is estimated here, so the estimate must come down by as much.
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
        """What leaves if a model, or nobody, says what was in it; *settings* say how much stays behind it."""
        if self.pivot is None:
            start = choose_start(self.messages, self.sizes, settings or self.settings)
            assert start is not None, "only what must stay can make it impossible"
            return RemovedRange(first=0, start=start, scope=ALL)
        at = nearest_start(self.messages, self.pivot.message - 1)
        begins = " ".join(block_text(self.messages[at][0].data).split())[:QUOTED] or self.messages[at][0].block_type
        if self.pivot.side == "up_to":
            scope = f"Summarise what comes before the message that begins with {begins!r}; the rest stays."
            return RemovedRange(first=0, start=at, scope=scope)
        scope = f"Summarise what begins with the message {begins!r}; what comes before it stays."
        return RemovedRange(first=at, start=len(self.messages), scope=scope)

"""One compaction under way: the conversation as it was, and how much room there is for what becomes of it."""

from collections.abc import Sequence
from functools import partial

import attrs

from coterie.agents.agent import Agent
from coterie.agents.compaction.plan import Pivot
from coterie.agents.compaction.summarising import ALL
from coterie.agents.conversation.records import Trigger
from coterie.agents.overflow import Overflow
from coterie.agents.tokens import estimate_block
from coterie.memory.clearing import edited_results
from coterie.memory.compaction.cut import KeepLimits, Messages, Sizes, choose_start, messages_of, nearest_start
from coterie.memory.compaction.limits import CompactionLimits
from coterie.memory.compaction.readable import readable
from coterie.memory.compaction.staying import staying_size

QUOTED = 200
"""Characters of a message by which the model is told which one is meant."""


@attrs.frozen(kw_only=True)
class Span:
    """The messages that leave: those from *first* up to *start*."""

    first: int
    start: int
    scope: str
    """The same in words for the model."""


@attrs.frozen(kw_only=True)
class Job:
    """What is to be compacted, why, and how far."""

    agent: Agent
    trigger: Trigger
    pivot: Pivot | None
    overflow: Overflow | None
    messages: Messages
    sizes: Sequence[int]
    """Tokens that each message would have if it stayed, estimated."""
    tokens: int
    """Of the whole conversation, as far as is known."""
    room: int
    """Tokens that the conversation may have afterwards, estimated."""
    limits: CompactionLimits

    @classmethod
    def of(
        cls,
        agent: Agent,
        limits: CompactionLimits,
        trigger: Trigger,
        pivot: Pivot | None = None,
        overflow: Overflow | None = None,
    ) -> "Job":
        """The job of compacting *agent*'s conversation as it is now."""
        messages, gone = messages_of(agent.conversation.segments), edited_results(agent.conversation.segments)
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
            sizes=Sizes(messages, partial(staying_size, count=estimate_block, gone=gone)),
            tokens=tokens,
            room=room,
            limits=limits.within(thresholds.compact),
        )

    def span(self, keep: KeepLimits | None = None) -> Span:
        """What leaves if a model, or nobody, says what was in it; *keep* is how much stays behind it."""
        if self.pivot is None:
            start = choose_start(self.messages, self.sizes, keep or self.limits.keep)
            assert start is not None, "only what must stay can make it impossible"
            return Span(first=0, start=start, scope=ALL)
        at = nearest_start(self.messages, self.pivot.message - 1)
        begins = " ".join(readable(self.messages[at][0].data).split())[:QUOTED] or self.messages[at][0].block_type
        if self.pivot.side == "up_to":
            scope = f"Summarise what comes before the message that begins with {begins!r}; the rest stays."
            return Span(first=0, start=at, scope=scope)
        scope = f"Summarise what begins with the message {begins!r}; what comes before it stays."
        return Span(first=at, start=len(self.messages), scope=scope)

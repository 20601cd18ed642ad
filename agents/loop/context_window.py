"""Measurement of how many tokens of its context window an agent uses."""

import attrs

from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.token_estimate import Thresholds, estimate_block
from coterie.agents.loop.model.usage import Usage
from coterie.memory.compaction.result_clearing import CACHE_EDITS, deleted_results


@attrs.define(eq=False)
class WindowMeter:
    """Token counter of one conversation: the usage of the last reply, plus an estimate of the blocks added since."""

    thresholds: Thresholds
    _tokens: int = 0
    _counted: int = 0
    """Number of segments (conversation blocks) that `_tokens` includes."""
    _epoch: int = 0
    _cached: int | None = None

    def resume(self, usage: Usage, counted: int, epoch: int) -> None:
        """Set the count to the *usage* of a reply. The conversation then had *counted* segments and this *epoch*."""
        self._tokens, self._counted, self._epoch = usage.total, counted, epoch
        self._cached = usage.prompt - usage.input

    def tokens(self, conversation: Conversation) -> int:
        """Return the input tokens of the next request. After a rewrite of earlier bytes, all of it is an estimate."""
        if conversation.epoch != self._epoch:
            self._tokens, self._counted, self._epoch, self._cached = 0, 0, conversation.epoch, None
        for index in range(self._counted, len(conversation)):
            self._tokens += _added(conversation, index)
        self._counted = len(conversation)
        return self._tokens

    def cached(self, conversation: Conversation) -> int | None:
        """Return the tokens in the prompt cache after the last reply; None before any reply and after a rewrite."""
        return self._cached if conversation.epoch == self._epoch else None


def _added(conversation: Conversation, index: int) -> int:
    """Estimate the tokens that the block at *index* adds to the prompt.

    Negative for a cache edit, which makes the server delete earlier tool results. Otherwise the request that frees
    space would itself seem too long and cause a compaction.
    """
    prefix = conversation.prefix
    if prefix[index].block_type != CACHE_EDITS:
        return estimate_block(prefix[index].data)
    gone, tokens = deleted_results([prefix[index]]), 0
    for earlier in range(index - 1, -1, -1):
        if not gone:
            break
        segment = prefix[earlier]
        if segment.block_type == "tool_result" and segment.tool_use_id in gone:
            gone.discard(segment.tool_use_id)
            tokens -= estimate_block(segment.data)
    return tokens

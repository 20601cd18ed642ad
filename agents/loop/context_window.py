"""Fill level of an agent's context window."""

import attrs

from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.token_estimate import Thresholds, estimate_block
from coterie.agents.loop.model.usage import Usage
from coterie.memory.compaction.result_clearing import CACHE_EDITS, deleted_results


@attrs.define(eq=False)
class WindowMeter:
    """Token counter of one conversation; each count looks only at the segments added since the last one."""

    thresholds: Thresholds
    _tokens: int = 0
    _counted: int = 0
    """Number of segments that `_tokens` covers."""
    _epoch: int = 0
    _cached: int | None = None

    def resume(self, usage: Usage, counted: int, epoch: int) -> None:
        """Set the count from *usage*, reported when the *epoch* had *counted* segments."""
        self._tokens, self._counted, self._epoch = usage.total, counted, epoch
        self._cached = usage.prompt - usage.input

    def tokens(self, conversation: Conversation) -> int:
        """Tokens of the next request; after a rewrite the whole count is an estimate."""
        if conversation.epoch != self._epoch:
            self._tokens, self._counted, self._epoch, self._cached = 0, 0, conversation.epoch, None
        for index in range(self._counted, len(conversation)):
            self._tokens += _added(conversation, index)
        self._counted = len(conversation)
        return self._tokens

    def cached(self, conversation: Conversation) -> int | None:
        """Tokens that the last reply left in the prompt cache; None before the first reply and after a rewrite."""
        return self._cached if conversation.epoch == self._epoch else None


def _added(conversation: Conversation, index: int) -> int:
    """Tokens that one block adds to the prompt; negative for a cache edit, which deletes earlier results.

    If deletions did not count, the request that makes room would itself look too long and trigger a compaction.
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

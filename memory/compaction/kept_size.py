"""Size of the part of a conversation that a compaction keeps."""

from collections.abc import Callable, Collection

from coterie.memory.compaction.conversation_view import SegmentView, SegmentViews
from coterie.memory.compaction.result_clearing import CACHE_EDITS, PLACEHOLDER, deleted_results
from coterie.memory.compaction.rewrite import THINKING

PLACEHOLDER_TOKENS = -(-len(PLACEHOLDER) // 4)
CountTokens = Callable[[bytes], int]
"""Function that returns the number of tokens of one content block."""


def kept_size(segment: SegmentView, count: CountTokens, gone: Collection[str]) -> int:
    """Return the tokens of a kept block.

    Thinking counts as zero, and a result in *gone*, deleted from the cache, as a placeholder: counted in full, they
    would displace messages that the model can see.
    """
    if segment.block_type == CACHE_EDITS or segment.block_type in THINKING:
        return 0
    if segment.block_type == "tool_result" and segment.tool_use_id in gone:
        return PLACEHOLDER_TOKENS
    return count(segment.data)


def kept_size_after(segments: SegmentViews, replies: int, count: CountTokens) -> int:
    """Return the tokens of the blocks after the reply that *replies* other replies follow.

    Reads only these blocks, however long the conversation is.
    """
    gone: set[str] = set()
    tokens, is_end = 0, True
    for index in range(len(segments) - 1, -1, -1):
        segment = segments[index]
        if segment.role is None:
            break
        if is_end and segment.role == "assistant":
            if replies == 0:
                break
            replies -= 1
        is_end = segment.opens_message
        if segment.block_type == CACHE_EDITS:
            gone |= deleted_results([segment])
        tokens += kept_size(segment, count, gone)
    return tokens

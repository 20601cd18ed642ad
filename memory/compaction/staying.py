"""How much of a conversation would stay: each block counted as a rewrite leaves it."""

from collections.abc import Callable, Collection

from coterie.memory.clearing import CACHE_EDITS, PLACEHOLDER, edited_results
from coterie.memory.ports import Segment, Segments
from coterie.memory.rewriting import THINKING

PLACEHOLDER_TOKENS = -(-len(PLACEHOLDER) // 4)
Count = Callable[[bytes], int]
"""Tokens of one block."""


def staying_size(segment: Segment, count: Count, gone: Collection[str]) -> int:
    """Tokens of a block that stays: of the results *gone* from the cache a word does, of thinking nothing.

    Counted whole, they would take the place of what the model does have in view.
    """
    if segment.block_type == CACHE_EDITS or segment.block_type in THINKING:
        return 0
    if segment.block_type == "tool_result" and segment.tool_use_id in gone:
        return PLACEHOLDER_TOKENS
    return count(segment.data)


def size_behind(segments: Segments, replies: int, count: Count) -> int:
    """Tokens that would stay of all behind the reply that is followed by *replies* others.

    Costs what is behind it, however long the conversation is.
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
            gone |= edited_results([segment])
        tokens += staying_size(segment, count, gone)
    return tokens

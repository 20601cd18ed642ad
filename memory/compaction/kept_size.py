"""Limits of compaction, and the size of what a conversation keeps."""

from collections.abc import Callable, Collection

import attrs

from coterie.memory.compaction.conversation_view import SegmentView, SegmentViews
from coterie.memory.compaction.cut_point import KeepLimits
from coterie.memory.compaction.result_clearing import CACHE_EDITS, PLACEHOLDER, deleted_results
from coterie.memory.compaction.rewrite import THINKING


@attrs.frozen(kw_only=True)
class CompactionLimits:
    """Which ways of compaction are open, and how much comes through; sizes in tokens."""

    by_notes: bool = True
    by_model: bool = True
    keep: KeepLimits = attrs.field(factory=KeepLimits)
    words: float = 0.2
    """The part of the window that the human's words may take."""
    files: int = 5
    """The newest files that the model has seen, which it sees again."""
    file: int = 5_000
    files_total: int = 50_000
    skill: int = 5_000
    """Of each skill that was loaded, which the model sees again, the last one first."""
    skills_total: int = 25_000
    failures: int = 3
    """Summaries that fail in a row before no model is asked any more."""

    def within(self, tokens: int) -> "CompactionLimits":
        """The limits in a context that holds *tokens*."""
        files, skills = min(self.files_total, tokens // 4), min(self.skills_total, tokens // 8)
        return attrs.evolve(
            self,
            keep=self.keep.within(tokens),
            files_total=files,
            file=min(self.file, files),
            skills_total=skills,
            skill=min(self.skill, skills),
        )


PLACEHOLDER_TOKENS = -(-len(PLACEHOLDER) // 4)
CountTokens = Callable[[bytes], int]
"""Tokens of one block."""


def kept_size(segment: SegmentView, count: CountTokens, gone: Collection[str]) -> int:
    """Tokens of a block that stays: of the results *gone* from the cache a word does, of thinking nothing.

    Counted whole, they would take the place of what the model does have in view.
    """
    if segment.block_type == CACHE_EDITS or segment.block_type in THINKING:
        return 0
    if segment.block_type == "tool_result" and segment.tool_use_id in gone:
        return PLACEHOLDER_TOKENS
    return count(segment.data)


def kept_size_after(segments: SegmentViews, replies: int, count: CountTokens) -> int:
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
            gone |= deleted_results([segment])
        tokens += kept_size(segment, count, gone)
    return tokens

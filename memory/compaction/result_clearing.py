"""Clearing of old tool results (context layer 2) by a placeholder or cache edits; token counts for a compaction."""

from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import Decimal

import attrs
import msgspec

from coterie.memory.compaction.conversation_view import SegmentView, SegmentViews
from coterie.memory.compaction.rewrite import THINKING, Message, rewrite

PLACEHOLDER = "[Old tool result content cleared]"
"""Text that replaces a cleared result, or the beginning of this text."""
_CLEARED = b'"text":"' + PLACEHOLDER.encode()
MEDIA_PLACEHOLDER = "[Left out: one request takes no more pictures and pages. Ask for this again, for fewer at once.]"
CACHE_EDITS = "cache_edits"
_MEDIA = frozenset({"image", "document"})
_HEAD = 400
"""Number of bytes at the start of a result block that are searched for the placeholder of a cleared result."""
_SMALL = 200
"""Maximum size in bytes of a block that is not worth clearing, because the placeholder is about as long."""


class _Call(msgspec.Struct):
    id: str
    name: str


class _Edit(msgspec.Struct):
    cache_reference: str


class _Edits(msgspec.Struct):
    edits: list[_Edit]


@attrs.frozen
class ClearableResult:
    """A tool result that may be cleared."""

    id: str
    index: int
    """Index in the conversation of the segment (content block) with the result."""
    size: int
    """Size in bytes of the result block as JSON; 0 if a placeholder has replaced the result already."""


@attrs.define(eq=False)
class ClearableResults:
    """Tool results of one conversation, oldest first, of those tools whose results may be cleared.

    Each update reads only new segments (content blocks), except in a new epoch, after the conversation was rewritten.
    """

    _is_clearable: Callable[[str], bool]
    """Function that returns True if the results of a tool, given by name, may be cleared."""
    _results: dict[str, ClearableResult] = attrs.field(factory=dict, init=False)
    _calls: dict[str, str] = attrs.field(factory=dict, init=False)
    _length: int = attrs.field(default=0, init=False)
    _epoch: int | None = attrs.field(default=None, init=False)

    def update(self, segments: SegmentViews, epoch: int) -> Sequence[ClearableResult]:
        """Read the segments added since the last update, and return all results that clearing would make smaller.

        If *epoch* has changed, all segments are read again.
        """
        if epoch != self._epoch:
            self._results, self._calls, self._length, self._epoch = {}, {}, 0, epoch
        for index in range(self._length, len(segments)):
            self._add(index, segments[index])
        self._length = len(segments)
        return [result for result in self._results.values() if result.size > _SMALL]

    def newest(self, count: int) -> set[str]:
        """Return the ids of the newest *count* results as of the last update, including small and cleared results."""
        return set(list(self._results)[-count:])

    def _add(self, index: int, segment: SegmentView) -> None:
        if segment.block_type == "tool_use":
            call = msgspec.json.decode(segment.data, type=_Call)
            self._calls[call.id] = call.name
        elif segment.block_type == "tool_result" and segment.tool_use_id is not None:
            name = self._calls.pop(segment.tool_use_id, None)
            if name is not None and self._is_clearable(name):
                # A cleared result still counts among the newest, as in the API, but is not cleared again.
                size = 0 if _CLEARED in segment.data[:_HEAD] else len(segment.data)
                self._results[segment.tool_use_id] = ClearableResult(segment.tool_use_id, index, size)
        elif segment.block_type == CACHE_EDITS:
            for edit in msgspec.json.decode(segment.data, type=_Edits).edits:
                self._results.pop(edit.cache_reference, None)


def clear_results(
    segments: Sequence[SegmentView],
    ids: Collection[str] = (),
    *,
    has_changed: bool = False,
    placeholder: str = PLACEHOLDER,
) -> list[Message]:
    """Return the messages of *segments* with a placeholder instead of the results of the tool calls *ids*.

    The same for results that were deleted from the prompt cache; the blocks with such deletions are omitted.
    *placeholder* must begin with `PLACEHOLDER`. Thinking after the first change is removed, as the API would reject it;
    *has_changed* is true if something before *segments* changed.
    """
    deleted = deleted_results(segments)
    gone = deleted | set(ids)

    def replacement(segment: SegmentView) -> bytes | None:
        if segment.block_type == CACHE_EDITS:
            return None
        if segment.block_type != "tool_result" or segment.tool_use_id not in gone:
            return segment.data
        text = PLACEHOLDER if segment.tool_use_id in deleted else placeholder
        return msgspec.json.encode({**msgspec.json.decode(segment.data), "content": [{"type": "text", "text": text}]})

    return rewrite(segments, replacement, has_changed=has_changed)


def find_media_results(segments: Iterable[SegmentView]) -> dict[str, int]:
    """Return the id and the size in bytes of each result in *segments* with images or documents, oldest first."""
    return {
        segment.tool_use_id: len(segment.data)
        for segment in segments
        if segment.block_type == "tool_result" and segment.tool_use_id is not None and _holds_media(segment.data)
    }


def remove_media(segments: Sequence[SegmentView], ids: Collection[str]) -> list[Message]:
    """Return the messages of *segments* with a text for images and documents in results *ids* and no later thinking."""

    def replacement(segment: SegmentView) -> bytes:
        if segment.block_type != "tool_result" or segment.tool_use_id not in ids:
            return segment.data
        block = msgspec.json.decode(segment.data)
        texts = [part for part in block["content"] if part.get("type") not in _MEDIA]
        return msgspec.json.encode({**block, "content": [*texts, {"type": "text", "text": MEDIA_PLACEHOLDER}]})

    return rewrite(segments, replacement)


def deleted_results(segments: Iterable[SegmentView]) -> set[str]:
    """Return the ids of the results that cache edit blocks in *segments* asked the server to delete from its cache."""
    return {
        edit.cache_reference
        for segment in segments
        if segment.block_type == CACHE_EDITS
        for edit in msgspec.json.decode(segment.data, type=_Edits).edits
    }


def make_cache_edits(ids: Sequence[str]) -> bytes:
    """Return the JSON block that asks the server to delete the results *ids* from the cached prefix."""
    edits = [{"type": "delete", "cache_reference": id_} for id_ in ids]
    return msgspec.json.encode({"type": CACHE_EDITS, "edits": edits})


def minimum_to_clear(trigger: int, *, write: Decimal, read: Decimal, turns: int) -> int:
    """Return how many of the *trigger* tokens in the context must be cleared at least, so that clearing saves money.

    Each cleared token saves its cache reads in *turns* turns. Each remaining token is written to the cache once instead
    of read. *write* and *read* are the prices for the same number of tokens.
    """
    rewriting = write - read
    return int(trigger * rewriting / (read * turns + rewriting)) + 1


def _holds_media(data: bytes) -> bool:
    # A substring test avoids decoding results that are only text.
    if not any(f'"{kind}"'.encode() in data for kind in _MEDIA):
        return False
    content = msgspec.json.decode(data).get("content")
    return isinstance(content, list) and any(part.get("type") in _MEDIA for part in content)


PLACEHOLDER_TOKENS = -(-len(PLACEHOLDER) // 4)
CountTokens = Callable[[bytes], int]
"""Function that returns the number of tokens of one content block."""


def kept_size(segment: SegmentView, count: CountTokens, gone: Collection[str]) -> int:
    """Return the number of tokens of the block *segment* that a compaction keeps.

    Thinking and cache edits count as zero, because the model does not see them. A result in *gone*, which was deleted
    from the cache, counts as a placeholder. Otherwise such blocks would displace messages that the model can see.
    """
    if segment.block_type == CACHE_EDITS or segment.block_type in THINKING:
        return 0
    if segment.block_type == "tool_result" and segment.tool_use_id in gone:
        return PLACEHOLDER_TOKENS
    return count(segment.data)


def kept_size_after(segments: SegmentViews, replies: int, count: CountTokens) -> int:
    """Return the tokens that a compaction keeps of the newest *replies* turns and later blocks. A reply ends a turn.

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

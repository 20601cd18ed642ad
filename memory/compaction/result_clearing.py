"""Layer 2: clearing of old tool results, and the size of what a compaction keeps."""

from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import Decimal

import attrs
import msgspec

from coterie.memory.compaction.conversation_view import SegmentView, SegmentViews
from coterie.memory.compaction.rewrite import THINKING, Message, rewrite

PLACEHOLDER = "[Old tool result content cleared]"
"""Text of a cleared result, or its beginning."""
_CLEARED = b'"text":"' + PLACEHOLDER.encode()
MEDIA_PLACEHOLDER = "[Left out: one request takes no more pictures and pages. Ask for this again, for fewer at once.]"
CACHE_EDITS = "cache_edits"
_MEDIA = frozenset({"image", "document"})
_HEAD = 400
"""Bytes at the start of a result block that contain the start of its text."""
_SMALL = 200
"""Largest block, in bytes, that clearing would not make smaller."""


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
    """Index of the result's segment in the conversation."""
    size: int
    """Size of the result in bytes."""


@attrs.define(eq=False)
class ClearableResults:
    """The uncleared results of clearable tools in a conversation, oldest first.

    Valid for one epoch of one conversation. Each update reads only new segments.
    """

    _is_clearable: Callable[[str], bool]
    """Function that returns True if the results of a tool, given by name, may be cleared."""
    _results: dict[str, ClearableResult] = attrs.field(factory=dict, init=False)
    _calls: dict[str, str] = attrs.field(factory=dict, init=False)
    _length: int = attrs.field(default=0, init=False)
    _epoch: int | None = attrs.field(default=None, init=False)

    def update(self, segments: SegmentViews, epoch: int) -> Sequence[ClearableResult]:
        """Read the new segments, and return the results that clearing would make smaller."""
        if epoch != self._epoch:
            self._results, self._calls, self._length, self._epoch = {}, {}, 0, epoch
        for index in range(self._length, len(segments)):
            self._add(index, segments[index])
        self._length = len(segments)
        return [result for result in self._results.values() if result.size > _SMALL]

    def newest(self, count: int) -> set[str]:
        """Return the ids of the newest *count* results as of the last update, including small ones."""
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
    """Return the messages of *segments*, with the results *ids* and all cache-deleted results cleared.

    *has_changed* is true if something before *segments* changed; see `rewrite`. The results *ids* get the text
    *placeholder*, which must begin with `PLACEHOLDER`.
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
    """Return the results in *segments* with images or documents, oldest first, and their size in bytes."""
    return {
        segment.tool_use_id: len(segment.data)
        for segment in segments
        if segment.block_type == "tool_result" and segment.tool_use_id is not None and _holds_media(segment.data)
    }


def remove_media(segments: Sequence[SegmentView], ids: Collection[str]) -> list[Message]:
    """Return the messages of *segments*, without the images and documents in the results *ids*."""

    def replacement(segment: SegmentView) -> bytes:
        if segment.block_type != "tool_result" or segment.tool_use_id not in ids:
            return segment.data
        block = msgspec.json.decode(segment.data)
        texts = [part for part in block["content"] if part.get("type") not in _MEDIA]
        return msgspec.json.encode({**block, "content": [*texts, {"type": "text", "text": MEDIA_PLACEHOLDER}]})

    return rewrite(segments, replacement)


def deleted_results(segments: Iterable[SegmentView]) -> set[str]:
    """Return the ids of the results that cache edits in *segments* deleted."""
    return {
        edit.cache_reference
        for segment in segments
        if segment.block_type == CACHE_EDITS
        for edit in msgspec.json.decode(segment.data, type=_Edits).edits
    }


def make_cache_edits(ids: Sequence[str]) -> bytes:
    """Return the block that asks the server to delete the results *ids* from the cached prefix."""
    edits = [{"type": "delete", "cache_reference": id_} for id_ in ids]
    return msgspec.json.encode({"type": CACHE_EDITS, "edits": edits})


def minimum_to_clear(trigger: int, *, write: Decimal, read: Decimal, turns: int) -> int:
    """Return the number of tokens, of *trigger*, that must be cleared so that clearing saves money.

    Each cleared token saves its cache reads over *turns*. Each remaining token is written once instead of read. Both
    prices are for the same number of tokens.
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

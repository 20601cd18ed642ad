"""Origin of each block of a conversation: its kind of content, and the context layer, if any, that changed it."""

from collections.abc import Collection, Mapping
from typing import Literal

import attrs
import msgspec

from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.segment import Segment
from coterie.agents.loop.conversation.token_estimate import estimate_block
from coterie.agents.loop.conversation.transcript_records import (
    Boundary,
    EpochRecord,
    MessageRecord,
    Record,
    UserTextRecord,
    Way,
)
from coterie.memory.compaction.result_clearing import CACHE_EDITS, PLACEHOLDER, deleted_results

What = Literal[
    "tools", "system", "context", "task", "human", "mail", "recalled", "directive", "news", "thinking", "said", "call",
    "result", "edit", "summary", "words", "standing", "skills", "files",
]  # fmt: skip
"""Kind of content of a block. context: text before the task; human: later user text; recalled: memories; directive: a
fork's task; said: model text; edit: deletion of results; news: other text; from summary on: written by a compaction."""
Layer = Literal[
    "layer 1 stored", "layer 2 cleared", "layer 2 cache edit", "layer 2 cut from cache", "layer 3 notes",
    "layer 4 summary", "layer 4 chunks", "layer 4 rule", "restored", "kept", "loop closed",
]  # fmt: skip
"""Change of a block to save context. stored: result moved to a file; cleared: result replaced; cache edit: deletes
results, which are cut from cache; notes, summary, chunks, rule: ways to summarize; restored: text that a compaction
added; kept: unchanged by it; loop closed: last calls turned to text."""

_BY_WAY: dict[Way, Layer] = {
    "notes": "layer 3 notes",
    "summary": "layer 4 summary",
    "chunks": "layer 4 chunks",
    "rule": "layer 4 rule",
}
_SAID: dict[str, What] = {"thinking": "thinking", "redacted_thinking": "thinking", "tool_use": "call", "text": "said"}
_TEXTS: tuple[tuple[bytes, What, Layer | None], ...] = (
    (b"<message from=", "mail", None),
    (b"<recalled-memories>", "recalled", None),
    (b"<fork-directive>", "directive", None),
    (b"<earlier-call>", "result", "loop closed"),
)
"""Rows for texts that the program writes for the model: first bytes, kind of content, context layer (or None)."""
_RESULTS: tuple[tuple[bytes, Layer], ...] = (
    (b"<persisted-output>", "layer 1 stored"),
    (PLACEHOLDER.encode(), "layer 2 cleared"),
)
_TEXT = b'"text":"'
_HEAD = 400
"""Number of bytes at the start of a block in which its text must begin, and of bytes of the text to compare."""


@attrs.frozen(kw_only=True)
class Origin:
    """Kind of content of one block of a conversation, the layer that changed the block, and its size."""

    what: What
    layer: Layer | None = None
    """Last layer (mechanism that keeps the context small) that changed the block; None for an unchanged block."""
    tokens: int
    """Estimated number of tokens of the block."""


@attrs.define(eq=False)
class Origins:
    """Tracks what each block of a conversation contains and which context layer changed it, record by record."""

    _all: list[Origin] = attrs.field(factory=list, init=False)
    _segments: list[Segment] = attrs.field(factory=list, init=False)
    _messages: int = attrs.field(default=0, init=False)
    _has_task: bool = attrs.field(default=False, init=False)

    def first(self, length: int) -> tuple[Origin, ...]:
        """Return the origins of the first *length* segments (blocks) of the conversation."""
        return tuple(self._all[:length])

    def follow(self, record: Record, conversation: Conversation) -> None:
        """Update the origins of the blocks after the transcript record *record* was applied to *conversation*."""
        match record:
            case EpochRecord():
                self._begin(record, conversation)
            case MessageRecord():
                for index in range(len(self._all), len(conversation)):
                    self._add(conversation.prefix[index])
            case UserTextRecord():
                self._find_user_texts(record.texts)
            case _:
                pass

    def _begin(self, record: EpochRecord, conversation: Conversation) -> None:
        """Replace all origins after a rewrite; a block with the same role and bytes as one before keeps its kind."""
        known = {(s.role, s.data): origin for s, origin in zip(self._segments, self._all, strict=True)}
        written = _written(record.boundary, conversation) if record.boundary else {}
        self._all, self._segments, self._messages = [], [], 0
        for index, segment in enumerate(conversation.segments):
            origin = written.get(index) or known.get((segment.role, segment.data))
            if origin is not None and record.boundary and segment.role is not None:
                origin = attrs.evolve(origin, layer=origin.layer or "kept")
            self._add(segment, origin)

    def _add(self, segment: Segment, origin: Origin | None = None) -> None:
        self._messages += segment.opens_message
        self._segments.append(segment)
        if origin is None:
            what, layer = _read(segment, is_first=self._messages == 1)
            origin = Origin(what=what, layer=layer, tokens=estimate_block(segment.data))
        self._all.append(origin)
        deleted = deleted_results([segment]) if segment.block_type == CACHE_EDITS else ()
        for index, earlier in enumerate(self._segments if deleted else ()):
            if earlier.block_type == "tool_result" and earlier.tool_use_id in deleted:
                self._all[index] = attrs.evolve(self._all[index], layer="layer 2 cut from cache")

    def _find_user_texts(self, texts: Collection[str]) -> None:
        """Set the kind of the last message's blocks whose text is in *texts*: "task" the first time, then "human"."""
        for index in range(len(self._segments) - 1, -1, -1):
            segment = self._segments[index]
            if segment.role != "user":
                break
            if segment.block_type == "text" and msgspec.json.decode(segment.data)["text"] in texts:
                self._all[index] = attrs.evolve(self._all[index], what="human" if self._has_task else "task")
            if segment.opens_message:
                break
        self._has_task = True


def _written(boundary: Boundary, conversation: Conversation) -> Mapping[int, Origin]:
    """Return index -> origin of the segments (blocks) that the compaction *boundary* wrote into *conversation*."""
    found: dict[int, Origin] = {}
    message, parts = -1, iter(boundary.parts)
    for index in range(conversation.prefix.prompt_length, len(conversation)):
        segment = conversation.prefix[index]
        message += segment.opens_message
        if message == boundary.at_message and (part := next(parts, None)):
            layer: Layer = _BY_WAY[boundary.by] if part == "summary" else "restored"
            found[index] = Origin(what=part, layer=layer, tokens=estimate_block(segment.data))
    return found


def _read(segment: Segment, *, is_first: bool) -> tuple[What, Layer | None]:
    """Return kind of content and layer of a block, judged by its bytes. *is_first*: it is in the first message."""
    if segment.section != "messages":
        return segment.section, None
    if segment.role == "assistant":
        return _SAID.get(segment.block_type, "said"), None
    if segment.block_type == CACHE_EDITS:
        return "edit", "layer 2 cache edit"
    at = segment.data.find(_TEXT, 0, _HEAD)
    text = segment.data[at + len(_TEXT) :][:_HEAD] if at >= 0 else b""
    if segment.block_type == "tool_result":
        return "result", next((layer for start, layer in _RESULTS if text.startswith(start)), None)
    unknown: tuple[What, Layer | None] = ("context" if is_first else "news", None)
    return next(((what, layer) for start, what, layer in _TEXTS if text.startswith(start)), unknown)

"""The cut point of a compaction: the index that separates older messages, to summarise, from newer ones, to keep."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

import attrs

from coterie.memory.compaction.conversation_view import SegmentView
from coterie.memory.layer_settings import CompactionSettings

Messages = Sequence[Sequence[SegmentView]]
"""The messages of a conversation, each as a list of content blocks."""


def split_messages(segments: Iterable[SegmentView]) -> list[list[SegmentView]]:
    """Group the blocks *segments* by message; omit the blocks of the tool list and the system prompt."""
    messages: list[list[SegmentView]] = []
    for segment in segments:
        if segment.role is None:
            continue
        if segment.opens_message:
            messages.append([])
        messages[-1].append(segment)
    return messages


@attrs.frozen
class MessageSizes(Sequence[int]):
    """Size of each message in tokens, by message index; a message is counted only when its size is first read."""

    _messages: Messages
    _count: Callable[[SegmentView], int]
    """Function that returns the number of tokens of one content block."""
    _known: dict[int, int] = attrs.field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if index not in self._known:
            self._known[index] = sum(map(self._count, self._messages[index]))
        return self._known[index]


def find_starts(messages: Messages) -> list[int]:
    """Return the indexes of the messages before which the conversation can be cut, except the first message.

    A cut never separates a tool result from its call.
    """
    return list(_starts_backwards(messages))[::-1]


def first_unknown(messages: Messages, replies: int) -> int:
    """Return the index of the first message of the newest *replies* turns; 0 if there are at most *replies* turns.

    A turn ends with a reply of the model. Notes that are *replies* turns old cover only the messages before it.
    """
    for number in range(len(messages) - 1, -1, -1):
        if messages[number][0].role == "assistant":
            if replies == 0:
                return number + 1
            replies -= 1
    return 0


def choose_start(
    messages: Messages, sizes: Sequence[int], settings: CompactionSettings, unknown: int | None = None
) -> int | None:
    """Return the index of the first message that a compaction keeps; `len(messages)` if no message is kept.

    Keeps the messages that `keep_least` and `keep_texts` in *settings* require, at most `keep_most`; *sizes* in tokens.
    Messages from index *unknown* on are not in the summary; returns None if they cannot all be kept.
    """
    chosen, at, tokens, texts = len(messages), len(messages), 0, 0
    for start in _starts_backwards(messages):
        tokens += sum(sizes[start:at])
        texts += sum(_has_block(message, "text") for message in messages[start:at])
        at = start
        if chosen < len(messages) and tokens > settings.keep_most:
            break
        chosen = start
        is_enough = tokens >= settings.keep_least and texts >= settings.keep_texts
        if is_enough and (unknown is None or chosen <= unknown):
            break
    return chosen if unknown is None or chosen <= unknown else None


def last_start(messages: Messages) -> int:
    """Return the largest index, except 0, at which the conversation can be cut; `len(messages)` if there is none."""
    return next(_starts_backwards(messages), len(messages))


def nearest_start(messages: Messages, number: int) -> int:
    """Return the largest index, at most *number*, at which the conversation can be cut; 0 if there is none."""
    return next((start for start in _starts_backwards(messages) if start <= number), 0)


def oldest_rounds(messages: Messages, sizes: Sequence[int], tokens: int) -> int:
    """Return the smallest cut index before which the messages have at least *tokens*; `len(messages)` if none does."""
    left = 0
    for start, end in zip((0, *find_starts(messages)), (*find_starts(messages), len(messages)), strict=True):
        left += sum(sizes[start:end])
        if left >= tokens:
            return end
    return len(messages)


def _starts_backwards(messages: Messages) -> Iterator[int]:
    return (number for number in range(len(messages) - 1, 0, -1) if not _has_block(messages[number], "tool_result"))


def _has_block(message: Sequence[SegmentView], block_type: str) -> bool:
    return any(segment.block_type == block_type for segment in message)

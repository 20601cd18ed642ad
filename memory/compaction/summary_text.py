"""Texts for a compaction: readable text of blocks, the summary in a reply, and texts of the user that must stay."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from coterie.memory.compaction.conversation_view import SegmentView
from coterie.memory.compaction.result_storage import truncate_text
from coterie.memory.errors import SummaryUnusable


def block_text(data: bytes) -> str:
    """Return the readable text of one JSON block: a text, the arguments of a tool call, or a tool result.

    Returns an empty string for thinking, images, documents and blocks that only the API reads.
    """
    return "\n".join(_texts(msgspec.json.decode(data)))


def message_texts(segments: Iterable[SegmentView]) -> list[str]:
    """Return the readable text of each message of *segments*, in order; omit tool definitions and the system prompt."""
    messages: list[list[str]] = []
    for segment in segments:
        if segment.role is None:
            continue
        if segment.opens_message or not messages:
            messages.append([])
        messages[-1].append(block_text(segment.data))
    return ["\n".join(filter(None, texts)) for texts in messages]


def _texts(block: dict[str, Any]) -> Iterator[str]:
    match block:
        case {"type": "text", "text": str(text)}:
            yield text
        case {"type": "tool_use", "input": arguments}:
            yield from _strings(arguments)
        case {"type": "tool_result", "content": str(text)}:
            yield text
        case {"type": "tool_result", "content": list(parts)}:
            for part in parts:
                yield from _texts(part)


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings and numbers in *value*, the arguments of a tool call, at any depth; numbers as text."""
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from _strings(each)
        case list():
            for each in value:
                yield from _strings(each)
        case bool() | None:
            return
        case _:
            yield str(value)


_ANALYSIS = re.compile(r"<analysis>.*?(</analysis>|\Z)", re.DOTALL)
_SUMMARY = re.compile(r"<summary>(.*?)(</summary>|\Z)", re.DOTALL)


def parse_summary(text: str, *, is_whole: bool) -> str:
    """Return the summary in *text*, a reply of the model, without the `<analysis>`; without tags, the whole reply.

    Raises `SummaryUnusable` if the summary is empty, or if *is_whole* is false, because the reply was cut or refused.
    """
    if not is_whole:
        raise SummaryUnusable(
            "the model's reply with the summary was cut off or refused; Coterie continues without a summary"
        )
    rest = _ANALYSIS.sub("", text)
    tagged = _SUMMARY.search(rest)
    summary = (tagged.group(1) if tagged else rest).strip()
    if not summary:
        raise SummaryUnusable("the model's reply has no summary in it; Coterie continues without one")
    return summary


BEGINNING = 2_000
"""Bytes to which a user message of more than twice this size is cut if there is not enough space for all messages."""
_BYTES = 4
"""Number of bytes that are assumed for one token."""


def missing_user_texts(words: Sequence[str], text: str) -> list[str]:
    """Return those of the user's messages *words* that *text*, the summary, does not contain verbatim, each once."""
    return [said for said in dict.fromkeys(words) if said.strip() and said not in text]


def fit_user_texts(words: Sequence[str], tokens: int, where: str) -> list[str]:
    """Shorten the user's messages *words* to about *tokens* in total, so that they fit behind a summary.

    The longest messages are cut to their beginning, with *where*, a reference to the full text. If that is not enough,
    the oldest messages are omitted, except the first message, which is the task.
    """
    shown, sizes = list(words), [len(said.encode()) for said in words]
    over = sum(sizes) - tokens * _BYTES
    for number in sorted(range(len(words)), key=lambda number: sizes[number], reverse=True):
        if over <= 0 or sizes[number] <= 2 * BEGINNING:
            break
        shown[number] = f"{truncate_text(words[number], BEGINNING)}\n[... {sizes[number]:,} bytes in all; see {where}]"
        over -= sizes[number] - len(shown[number].encode())
    gone = 0
    while over > 0 and gone < len(shown) - 1:
        gone += 1
        over -= len(shown[gone].encode())
    return [*shown[:1], *([f"[{gone} messages left out here; see {where}]"] if gone else []), *shown[1 + gone :]]

"""The texts of blocks, as a reader of the conversation sees them: without JSON around them."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from coterie.memory.ports import Segment


def readable(data: bytes) -> str:
    """The text of one block given as JSON: what was said, what a call was given, or what it gave back.

    Empty for what has no text for a reader: thinking, images, documents and what only the API reads.
    """
    return "\n".join(_texts(msgspec.json.decode(data)))


def texts_of(segments: Iterable[Segment]) -> list[str]:
    """The readable text of each message of *segments*, in their order; tools and system are left out."""
    messages: list[list[str]] = []
    for segment in segments:
        if segment.role is None:
            continue
        if segment.opens_message or not messages:
            messages.append([])
        messages[-1].append(readable(segment.data))
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
    """All that is said in the arguments of a call, however deep."""
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

"""Token count of content blocks: deterministic, additive and cheap."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from coterie.scenarios.api_server.request.api_request import Block
from coterie.scenarios.api_server.request.canonical_block import canonical_block

_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")


def count_pages(data: Any) -> int:
    """Pages of the PDF that is *data* in base64; 0 where they are packed away, or it is none."""
    if not isinstance(data, str):
        return 0
    try:
        return len(_PAGE.findall(base64.b64decode(data)))
    except (binascii.Error, ValueError):
        return 0


BYTES_PER_TOKEN = 4
"""Of text in UTF-8; a part of a token counts as one."""
BYTES_PER_JSON_TOKEN = 3
IMAGE = 1_600
DOCUMENT = 2_000
"""A document whose text the server cannot see: a page of a PDF, or one that is elsewhere."""
TOOL_BLOCK = 4
"""What a tool_use or tool_result costs beside its content."""

_encoder = msgspec.json.Encoder()


def count_block(block: Block, encoded: bytes | None = None) -> int:
    """Tokens of one content block, system block or tool definition; its cache marker never counts.

    *encoded* is the block's canonical form, if the caller has it already. A block of unknown type or shape
    counts by its bytes, so nothing that parses as JSON fails here.
    """
    kind = block.get("type")
    counter = _COUNTERS.get(kind) if isinstance(kind, str) else None
    tokens = counter(block) if counter is not None else None
    if tokens is not None:
        return tokens
    return _json(canonical_block(block) if encoded is None else encoded)


def count_blocks(blocks: Iterable[Block]) -> int:
    """Tokens of all *blocks*: the sum of their own."""
    return sum(map(count_block, blocks))


def is_deferred(tool: Block) -> bool:
    """Whether a tool definition waits outside the prompt: it costs nothing and is part of no prefix."""
    return tool.get("defer_loading") is True


def _text(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode())
    return -(-size // BYTES_PER_TOKEN) or 1


def _json(encoded: bytes) -> int:
    return -(-len(encoded) // BYTES_PER_JSON_TOKEN)


def _count_text(block: Block) -> int | None:
    text = block.get("text")
    return _text(text) if isinstance(text, str) else None


def _count_thinking(block: Block) -> int | None:
    text = block.get("thinking")
    return _text(text) if isinstance(text, str) else None


def _count_document(block: Block) -> int | None:
    source = block.get("source")
    if isinstance(source, dict):
        if source.get("type") == "text" and isinstance(source.get("data"), str):
            return _text(source["data"])
        if source.get("type") == "content":
            return max(1, _count_content(source.get("content")))
        if source.get("type") == "base64":
            return DOCUMENT * max(1, count_pages(source.get("data")))
    return DOCUMENT


def _count_tool_use(block: Block) -> int | None:
    name = block.get("name")
    if not isinstance(name, str):
        return None
    return TOOL_BLOCK + _text(name) + _json(_encoder.encode(block.get("input")))


def _count_tool_result(block: Block) -> int | None:
    return TOOL_BLOCK + _count_content(block.get("content"))


def _count_content(content: Any) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return _text(content)
    if isinstance(content, list):
        return sum([count_block(p) if isinstance(p, dict) else _json(_encoder.encode(p)) for p in content])
    return _json(_encoder.encode(content))


_COUNTERS: dict[str, Callable[[Block], int | None]] = {
    "text": _count_text,
    "thinking": _count_thinking,
    "image": lambda _: IMAGE,
    "document": _count_document,
    "tool_use": _count_tool_use,
    "tool_result": _count_tool_result,
    # An instruction to the cache, never seen by the model.
    "cache_edits": lambda _: 0,
}

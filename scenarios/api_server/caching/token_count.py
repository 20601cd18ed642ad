"""Token count of content blocks. The API's tokenizer is not public, so tokens are estimated from bytes."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from coterie.scenarios.api_server.request.api_request import Block, canonical_block

_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")


def count_pages(data: Any) -> int:
    """Count the pages of a base64-encoded PDF; 0 if the page objects are compressed or *data* is not a PDF."""
    if not isinstance(data, str):
        return 0
    try:
        return len(_PAGE.findall(base64.b64decode(data)))
    except (binascii.Error, ValueError):
        return 0


BYTES_PER_TOKEN = 4
"""Bytes of UTF-8 text that count as one token; the count of a text is rounded up."""
BYTES_PER_JSON_TOKEN = 3
IMAGE = 1_600
DOCUMENT = 2_000
"""Tokens of a PDF page, or of a document that the server cannot read."""
TOOL_BLOCK = 4
"""Tokens of a `tool_use` or `tool_result` block in addition to those of its name, input or content."""

_encoder = msgspec.json.Encoder()


def count_block(block: Block, encoded: bytes | None = None) -> int:
    """Return the tokens of one content block, system block or tool definition, without its `cache_control`.

    *encoded* is the result of `canonical_block`, if already known. A block of unknown type or shape counts by its
    bytes, so any valid JSON is accepted.
    """
    kind = block.get("type")
    counter = _COUNTERS.get(kind) if isinstance(kind, str) else None
    tokens = counter(block) if counter is not None else None
    if tokens is not None:
        return tokens
    return _json(canonical_block(block) if encoded is None else encoded)


def count_blocks(blocks: Iterable[Block]) -> int:
    """Return the sum of the tokens of all *blocks*."""
    return sum(map(count_block, blocks))


def is_deferred(tool: Block) -> bool:
    """True if a tool definition has `defer_loading`: it is not part of the prompt and counts no tokens."""
    return tool.get("defer_loading") is True


def _text(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode())
    return -(-size // BYTES_PER_TOKEN) or 1


def _json(encoded: bytes) -> int:
    return -(-len(encoded) // BYTES_PER_JSON_TOKEN)


def _count_text(text: Any) -> int | None:
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


def _count_content(content: Any) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return _text(content)
    if isinstance(content, list):
        return sum([count_block(p) if isinstance(p, dict) else _json(_encoder.encode(p)) for p in content])
    return _json(_encoder.encode(content))


_COUNTERS: dict[str, Callable[[Block], int | None]] = {
    "text": lambda block: _count_text(block.get("text")),
    "thinking": lambda block: _count_text(block.get("thinking")),
    "image": lambda _: IMAGE,
    "document": _count_document,
    "tool_use": _count_tool_use,
    "tool_result": lambda block: TOOL_BLOCK + _count_content(block.get("content")),
    # An instruction for the cache, which the model does not see.
    "cache_edits": lambda _: 0,
}

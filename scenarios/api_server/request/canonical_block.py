"""Canonical JSON of a content block, as the prompt cache and thinking signatures see it."""

from typing import Any

import msgspec

from coterie.scenarios.api_server.request.api_request import Block

_encoder = msgspec.json.Encoder()


def canonical_block(block: Block) -> bytes:
    """Return compact JSON of *block* without cache markers; key order is kept, because it is part of the cache key."""
    # Fast path for most blocks of a history; this runs for every block.
    if "content" not in block and "cache_control" not in block:
        return _encoder.encode(block)
    return _encoder.encode(_unmarked(block))


def _unmarked(block: Block) -> Block:
    content = block.get("content")
    if content is not None:
        if isinstance(content, list) and has_marked_part(content):
            parts = [_unmarked(part) if isinstance(part, dict) else part for part in content]
            block = {**block, "content": parts}
        elif isinstance(content, str) and block.get("type") == "tool_result":
            block = {**block, "content": [{"type": "text", "text": content}]}
    if "cache_control" in block:
        return {key: value for key, value in block.items() if key != "cache_control"}
    return block


def has_marked_part(parts: list[Any]) -> bool:
    """True if one of *parts*, the content of a block, has a cache marker, also a null one."""
    for part in parts:  # noqa: SIM110 - a hot loop, in which a generator costs twice as much
        if isinstance(part, dict) and "cache_control" in part:
            return True
    return False

"""The canonical form of a block: what the prompt cache and the thinking binding see of it."""

from typing import Any

import msgspec

from coterie.scenarios.server.call import Block

_encoder = msgspec.json.Encoder()


def canonical(block: Block) -> bytes:
    """Compact JSON of *block* without its cache markers; key order inside is kept, because it is part of the key."""
    return _encoder.encode(_unmarked(block))


def _unmarked(block: Block) -> Block:
    content = block.get("content")
    if isinstance(content, list) and any(isinstance(part, dict) and "cache_control" in part for part in content):
        block = {
            **block,
            "content": [_unmarked(part) if isinstance(part, dict) else part for part in content],
        }
    elif isinstance(content, str) and block.get("type") == "tool_result":
        block = {**block, "content": _as_text_block(content)}
    if "cache_control" in block:
        return {key: value for key, value in block.items() if key != "cache_control"}
    return block


def _as_text_block(content: str) -> list[Any]:
    return [{"type": "text", "text": content}]

"""Short requests for tests of the embedded server."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from coterie.agents.loop.model.catalog import load_models
from coterie.scenarios.api_server.request.api_request import ApiCaller, ApiRequest, Block, parse_request

MODELS = load_models()
EPHEMERAL = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def text(words: str = "x", **fields: Any) -> Block:
    return {"type": "text", "text": words, **fields}


def sized(tokens: int, letter: str = "x", **fields: Any) -> Block:
    """A text block that the server counts as *tokens*."""
    return text(letter * (4 * tokens), **fields)


def tool_use(id_: str, name: str = "Read", **arguments: Any) -> Block:
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def tool_result(id_: str, content: Any = "done", **fields: Any) -> Block:
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **fields}


def thinking(words: str = "hm", **fields: Any) -> Block:
    return {"type": "thinking", "thinking": words, "signature": "s", **fields}


def user(*blocks: Block) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Block) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def tool(name: str = "Read", **fields: Any) -> Block:
    return {"name": name, "input_schema": {"type": "object"}, **fields}


def make_call(
    *messages: Mapping[str, Any],
    model: str = "claude-opus-5",
    key: str = "key",
    betas: Sequence[str] = (),
    **params: Any,
) -> ApiRequest:
    """Send the request through JSON and the server's own parser."""
    body = {"model": model, "max_tokens": 16, "messages": messages or (user(text("hello")),), **params}
    return parse_request(msgspec.json.encode(body), ApiCaller(key=key, betas=frozenset(betas)), MODELS)

"""Parses requests of the Messages API (JSON body, HTTP headers of the client), and encodes blocks for hashing."""

import functools
from collections.abc import Mapping
from typing import Any, Literal

import attrs
import msgspec

from coterie.agents.loop.model.catalog import Model, ModelTable
from coterie.scenarios.api_server.request.errors import ApiError, invalid_request, not_found

Block = dict[str, Any]
"""One content block, tool definition or system block as JSON, with keys in the received order."""

ROLES = ("user", "assistant", "system")
_encoder = msgspec.json.Encoder()


@attrs.frozen(kw_only=True)
class ApiCaller:
    """The client that sent a request, parsed from the HTTP headers."""

    key: str
    """API key of the client; each key has a prompt cache and rate limits of its own."""
    version: str = "2026-10-21"
    betas: frozenset[str] = frozenset()
    agent: str | None = None
    incarnation: int | None = None
    purpose: str = "turn"
    turn: int | None = None
    """Number of the agent's model call for `purpose`, from 1; a retry repeats it. None if the client sends none."""
    retry: int = 0
    """Number of earlier attempts of this request by the Anthropic SDK; 0 for the first attempt."""


@attrs.frozen(kw_only=True)
class RequestMessage:
    """One message of a request; string content has been converted to a text block."""

    role: Literal["user", "assistant", "system"]
    content: tuple[Block, ...]


@attrs.frozen(kw_only=True)
class ApiRequest:
    """A parsed request. Only the types of its main fields are checked; `check_request` checks the rules of the API."""

    caller: ApiCaller
    model: Model
    model_name: str
    """Name of the model as the client sent it, possibly an alias; the reply repeats it."""
    max_tokens: int
    tools: tuple[Block, ...] = ()
    system: tuple[Block, ...] = ()
    messages: tuple[RequestMessage, ...] = ()
    stream: bool = False
    params: Mapping[str, Any] = attrs.field(factory=dict)
    """All top-level parameters without an attribute above, as sent: tool_choice, thinking, output_config, cache_control
    ...
    """

    @functools.cached_property
    def block_types(self) -> frozenset[str]:
        """Types of all blocks in messages. Rules use them to skip block types that do not occur."""
        return frozenset([block["type"] for message in self.messages for block in message.content])


def parse_request(body: bytes, caller: ApiCaller, models: ModelTable, *, needs_max_tokens: bool = True) -> ApiRequest:
    """Parse the JSON *body* of a request; fields without an attribute are kept in `params`.

    *needs_max_tokens* is False for a request that only counts tokens. Raises `ApiError`: 400 for invalid JSON or a
    value of a wrong type, 404 for an unknown model.
    """
    fields = _object(body)
    name = _pop_field(fields, "model", str)
    model = models.find(name)
    if model is None:
        raise not_found(f"model: {name}")
    max_tokens = _max_tokens(fields, required=needs_max_tokens)
    tools = _blocks(fields.pop("tools", None) or (), "tools")
    system = fields.pop("system", None)
    system_blocks = () if system is None else _content(system, "system")
    messages = _pop_field(fields, "messages", list)
    if not messages:
        raise invalid_request("messages: at least one message is required")
    stream = fields.pop("stream", None)
    if not isinstance(stream, bool | None):
        raise invalid_request("stream: Input should be a valid boolean")
    return ApiRequest(
        caller=caller,
        model=model,
        model_name=name,
        max_tokens=max_tokens,
        tools=tools,
        system=system_blocks,
        messages=tuple([_message(value, index) for index, value in enumerate(messages)]),
        stream=bool(stream),
        params=fields,
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise invalid_request(f"The request body is not valid JSON: {exc}") from exc
    except UnicodeDecodeError as exc:
        raise invalid_request("The request body is not valid JSON: not UTF-8") from exc
    if not isinstance(value, dict):
        raise invalid_request("The request body must be a JSON object.")
    return value


def _pop_field(fields: dict[str, Any], name: str, kind: type) -> Any:
    if name not in fields:
        raise invalid_request(f"{name}: Field required")
    value = fields.pop(name)
    if not isinstance(value, kind):
        expected = {str: "string", list: "list", int: "integer"}[kind]
        raise invalid_request(f"{name}: Input should be a valid {expected}")
    return value


def _max_tokens(fields: dict[str, Any], *, required: bool) -> int:
    if not required and "max_tokens" not in fields:
        return 1
    value = _pop_field(fields, "max_tokens", int)
    if isinstance(value, bool) or value < 0:
        raise invalid_request("max_tokens: Input should be greater than or equal to 0")
    return int(value)


def _message(value: Any, index: int) -> RequestMessage:
    if not isinstance(value, dict):
        raise invalid_request(f"messages.{index}: Input should be a valid dictionary")
    role, content = value.get("role"), value.get("content")
    if role not in ROLES:
        raise invalid_request(f"messages.{index}.role: Input should be 'user', 'assistant' or 'system'")
    if content.__class__ is list and all(b.__class__ is dict and b.get("type").__class__ is str for b in content):
        # Fast path: the error path of each block is built only if a block is invalid.
        return RequestMessage(role=role, content=tuple(content))
    if "content" not in value:
        raise invalid_request(f"messages.{index}.content: Field required")
    return RequestMessage(role=role, content=_content(content, f"messages.{index}.content"))


def _content(value: Any, path: str) -> tuple[Block, ...]:
    """Return the blocks of *value*; a string becomes one text block. Raises `ApiError` (400) if a block is invalid."""
    if isinstance(value, str):
        return ({"type": "text", "text": value},)
    return _blocks(value, path)


def _blocks(value: Any, path: str) -> tuple[Block, ...]:
    if not isinstance(value, list | tuple):
        raise invalid_request(f"{path}: Input should be a valid list")
    for index, block in enumerate(value):
        if not isinstance(block, dict):
            raise invalid_request(f"{path}.{index}: Input should be a valid dictionary")
        if path != "tools" and not isinstance(block.get("type"), str):
            raise invalid_request(f"{path}.{index}.type: Field required")
    return tuple(value)


VERSIONS = ("2023-06-01", "2026-10-21")


def parse_caller(headers: Mapping[str, str]) -> ApiCaller:
    """Parse the client of a request from *headers*.

    Raises `ApiError`: 401 without an API key, 400 for a missing or unknown API version or an invalid number.
    """
    version = headers.get("anthropic-version", "")
    if version not in VERSIONS:
        known = " or ".join(VERSIONS)
        raise invalid_request(f"anthropic-version: header is required and must be {known}; got {version!r}")
    betas = headers.get("anthropic-beta", "")
    return ApiCaller(
        key=_key(headers),
        version=version,
        betas=frozenset(name.strip() for name in betas.split(",") if name.strip()),
        agent=headers.get("x-coterie-agent"),
        incarnation=_number(headers, "x-coterie-incarnation"),
        purpose=headers.get("x-coterie-purpose", "turn"),
        turn=_number(headers, "x-coterie-turn"),
        retry=_number(headers, "x-stainless-retry-count") or 0,
    )


def _key(headers: Mapping[str, str]) -> str:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    key = headers.get("x-api-key") or (bearer.strip() if scheme.lower() == "bearer" else "")
    if not key:
        raise ApiError(401, "authentication_error", "x-api-key or authorization header is required")
    return key


def _number(headers: Mapping[str, str], name: str) -> int | None:
    value = headers.get(name)
    if value is None:
        return None
    if not value.isdecimal() or len(value) > 9:
        raise invalid_request(f"{name}: {value[:20]!r} is not a whole number")
    return int(value)


def canonical_block(block: Block) -> bytes:
    """Return compact JSON of *block* without `cache_control`, as hashed for the prompt cache and thinking signatures.

    The order of keys is kept, as it is part of the cache key. Text content of a tool result becomes a text block.
    """
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
    """True if an item of *parts*, the content list of a block, has the key `cache_control`, even if it is null."""
    for part in parts:  # noqa: SIM110 - a hot loop, in which a generator costs twice as much
        if isinstance(part, dict) and "cache_control" in part:
            return True
    return False

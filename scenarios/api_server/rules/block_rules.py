"""Rules for content blocks: known block types, required fields, complete sources and the number of PDF pages."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from coterie.scenarios.api_server.caching.breakpoints import SERVER_RESULT
from coterie.scenarios.api_server.caching.token_count import count_pages
from coterie.scenarios.api_server.request.api_request import ApiRequest, Block
from coterie.scenarios.api_server.request.errors import ApiError, invalid_request

Fields = Mapping[str, type]

KNOWN_TYPES = (
    "cache_edits",
    "compaction",
    "container_upload",
    "document",
    "fallback",
    "image",
    "mcp_tool_listing",
    "mcp_tool_use",
    "redacted_thinking",
    "search_result",
    "server_tool_use",
    "text",
    "thinking",
    "tool_addition",
    "tool_removal",
    "tool_result",
    "tool_use",
)

PART_TYPES = ("document", "image", "search_result", "text", "tool_reference")
"""Block types allowed in the content of a `tool_result`."""

FIELDS: Mapping[str, Fields] = {
    "text": {"text": str},
    "image": {"source": dict},
    "document": {"source": dict},
    "thinking": {"thinking": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
    "server_tool_use": {"id": str, "name": str, "input": dict},
    "cache_edits": {"edits": list},
}
SIGNED: Mapping[str, Fields] = {
    "thinking": {"signature": str},
    "redacted_thinking": {"data": str},
}
"""Field that contains the signature of a thinking block, by block type; strict mode (all API rules) requires it."""

SOURCES: Mapping[str, Mapping[str, Fields]] = {
    "image": {
        "base64": {"media_type": str, "data": str},
        "url": {"url": str},
        "file": {"file_id": str},
    },
    "document": {
        "base64": {"media_type": str, "data": str},
        "text": {"media_type": str, "data": str},
        "content": {"content": object},
        "url": {"url": str},
        "file": {"file_id": str},
    },
}
MEDIA_TYPES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("image", "base64"): ("image/jpeg", "image/png", "image/gif", "image/webp"),
    ("document", "base64"): ("application/pdf",),
    ("document", "text"): ("text/plain",),
}

MOST_PAGES, FEWER_PAGES = 600, 100
LONG_WINDOW = 1_000_000
"""Context window in tokens from which a model accepts MOST_PAGES PDF pages in a request; others accept FEWER_PAGES."""

TYPE_NAMES: Mapping[type, str] = {str: "string", dict: "dictionary", list: "list"}


def unknown_tag(path: str, tag: object, known: Iterable[str]) -> ApiError:
    """Return a 400 error for the block at *path*, whose type *tag* is not one of *known*."""
    return invalid_request(
        f"{path}: Input tag '{tag}' found using 'type' does not match any of the expected tags: {quoted(known)}"
    )


def quoted(names: Iterable[str]) -> str:
    """Format *names* as a list in an error message of the API: quoted, with commas."""
    return ", ".join(f"'{name}'" for name in names)


def blocks_have_their_fields(call: ApiRequest) -> None:
    """Raise `ApiError` if a block lacks a field needed to pair tool calls with results, count tokens, or cache."""
    for index, block in enumerate(call.system):
        _has_fields(block, f"system.{index}")
    for path, block in _blocks(call, FIELDS):
        _has_fields(block, path)
        if block["type"] == "tool_result":
            _result_is_readable(block.get("content"), f"{path}.tool_result.content")


def block_types_are_known(call: ApiRequest) -> None:
    """Raise `ApiError` unless every block has a type that the API documents for its place."""
    for index, block in enumerate(call.system):
        if block["type"] != "text":
            raise unknown_tag(f"system.{index}", block["type"], ("text",))
    unknown = {kind for kind in call.block_types if kind not in KNOWN_TYPES and not kind.endswith(SERVER_RESULT)}
    for path, block in _blocks(call, unknown):
        raise unknown_tag(path, block["type"], (*KNOWN_TYPES, f"*{SERVER_RESULT}"))
    for path, part in _parts(call):
        if part["type"] not in PART_TYPES:
            raise unknown_tag(path, part["type"], PART_TYPES)


def thinking_is_signed(call: ApiRequest) -> None:
    """Raise `ApiError` if a thinking block lacks the field with its signature; the signature is verified elsewhere."""
    for path, block in _blocks(call, SIGNED):
        _are_of_type(block, SIGNED[block["type"]], f"{path}.{block['type']}")


def sources_are_complete(call: ApiRequest) -> None:
    """Raise `ApiError` if an image or document lacks a known source type, a field of it, or a permitted media type."""
    for path, block in itertools.chain(_blocks(call, SOURCES), _parts(call)):
        if block["type"] not in SOURCES:
            continue
        place, kinds, source = f"{path}.{block['type']}.source", SOURCES[block["type"]], block["source"]
        kind = source.get("type")
        if not isinstance(kind, str) or kind not in kinds:
            raise unknown_tag(place, kind, kinds)
        _are_of_type(source, kinds[kind], f"{place}.{kind}")
        media = MEDIA_TYPES.get((block["type"], kind))
        if media is not None and source["media_type"] not in media:
            raise invalid_request(f"{place}.{kind}.media_type: Input should be {quoted(media)}")


def pdf_pages_are_few_enough(call: ApiRequest) -> None:
    """Raise `ApiError` if all PDFs of a request together have more pages than the model allows."""
    if call.block_types.isdisjoint({"document", "tool_result"}):
        return
    documents = (part for _, part in itertools.chain(_blocks(call, {"document"}), _parts(call)))
    sources = (part["source"] for part in documents if part["type"] == "document")
    pages = sum(count_pages(source.get("data")) for source in sources if source.get("type") == "base64")
    most = MOST_PAGES if call.model.window >= LONG_WINDOW else FEWER_PAGES
    if pages > most:
        raise invalid_request(f"A maximum of {most} PDF pages may be provided.")


def _blocks(call: ApiRequest, types: Collection[str]) -> Iterator[tuple[str, Block]]:
    """Yield the blocks of these *types* in messages, each with its path."""
    if call.block_types.isdisjoint(types):
        return
    for number, message in enumerate(call.messages):
        for index, block in enumerate(message.content):
            if block["type"] in types:
                yield f"messages.{number}.content.{index}", block


def _parts(call: ApiRequest) -> Iterator[tuple[str, Block]]:
    """Yield the blocks inside tool results, each with its path."""
    for path, block in _blocks(call, ("tool_result",)):
        content = block.get("content")
        for index, part in enumerate(content if isinstance(content, list) else ()):
            yield f"{path}.tool_result.content.{index}", part


def _has_fields(block: Block, path: str) -> None:
    fields = FIELDS.get(block["type"])
    if fields is not None:
        _are_of_type(block, fields, f"{path}.{block['type']}")


def _are_of_type(value: Mapping[str, Any], fields: Fields, path: str) -> None:
    for name, kind in fields.items():
        if name not in value:
            raise invalid_request(f"{path}.{name}: Field required")
        if not isinstance(value[name], kind):
            raise invalid_request(f"{path}.{name}: Input should be a valid {TYPE_NAMES[kind]}")


def _result_is_readable(content: Any, path: str) -> None:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise invalid_request(f"{path}: Input should be a valid string or list")
    for index, part in enumerate(content):
        if not isinstance(part, dict):
            raise invalid_request(f"{path}.{index}: Input should be a valid dictionary")
        if not isinstance(part.get("type"), str):
            raise invalid_request(f"{path}.{index}.type: Field required")
        _has_fields(part, f"{path}.{index}")

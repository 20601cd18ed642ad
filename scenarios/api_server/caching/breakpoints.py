"""Cache breakpoints of a request: the blocks with `cache_control`, and those that the API adds; checks their rules."""

from collections.abc import Iterator
from typing import Any, Literal

import attrs

from coterie.scenarios.api_server.caching.context_editing import CACHE_EDITS, THINKING
from coterie.scenarios.api_server.caching.prompt_digest import PromptDigest
from coterie.scenarios.api_server.caching.token_count import is_deferred
from coterie.scenarios.api_server.request.api_request import ApiRequest, Block, has_marked_part
from coterie.scenarios.api_server.request.errors import invalid_request

MARKERS_LIMIT = 4
SERVER_RESULT = "_tool_result"
"""Suffix of the block types of server tool results; the result of a client tool is `tool_result`."""
UNMARKABLE = THINKING | {CACHE_EDITS}

Ttl = Literal["5m", "1h"]


@attrs.frozen(kw_only=True)
class Breakpoint:
    """A cache breakpoint: the prompt (tools, system, messages) up to the block at *index* is cached for *ttl*."""

    index: int
    ttl: Ttl


def find_breakpoints(call: ApiRequest, prompt: PromptDigest) -> tuple[Breakpoint, ...]:
    """Return all cache breakpoints of *call* in prompt order, including those that the API adds.

    Raises `ApiError` (400), as the API does, for an invalid `cache_control`, more than four, or `1h` after `5m`.
    """
    explicit = [(path, _check_block(block, path)) for path, block in _marked_blocks(call)]
    _check_count(len(explicit))
    _check_order(explicit)
    markers = [
        Breakpoint(index=index, ttl=_ttl(block["cache_control"], ""))
        for index, block in enumerate(prompt.blocks)
        if block.get("cache_control") is not None
    ]
    automatic = _automatic(call, prompt, markers)
    if automatic is not None:
        _check_order([*explicit, ("cache_control", automatic.ttl)])
        markers.append(automatic)
    markers += _on_server_tool_results(call, prompt, markers)
    return tuple(sorted(markers, key=lambda marker: marker.index))


def _on_server_tool_results(call: ApiRequest, prompt: PromptDigest, markers: list[Breakpoint]) -> list[Breakpoint]:
    """Return the breakpoint that the API adds on the last server tool result, in a list; empty if it adds none.

    The API adds it only to a request with breakpoints. It is exempt from their maximum number and order of lifetimes.
    """
    types = {kind for kind in call.block_types if kind.endswith(SERVER_RESULT)}
    if not markers or not types:
        return []
    last = max(index for index, block in enumerate(prompt.blocks) if block.get("type") in types)
    return [] if any(marker.index == last for marker in markers) else [Breakpoint(index=last, ttl="5m")]


def _marked_blocks(call: ApiRequest) -> Iterator[tuple[str, Block]]:
    """Yield every top-level block with `cache_control`, with its path. Raises `ApiError` (400) for a nested one."""
    for section, blocks in (("tools", call.tools), ("system", call.system)):
        for index, block in enumerate(blocks):
            if block.get("cache_control") is not None:
                yield f"{section}.{index}", block
    for at, message in enumerate(call.messages):
        for index, block in enumerate(message.content):
            if block.get("cache_control") is not None:
                yield f"messages.{at}.content.{index}", block
            content = block.get("content")
            if isinstance(content, list) and has_marked_part(content):
                _check_parts(content, f"messages.{at}.content.{index}.content")


def _check_parts(parts: list[Any], path: str) -> None:
    for index, part in enumerate(parts):
        if isinstance(part, dict) and part.get("cache_control") is not None:
            raise invalid_request(
                f"{path}.{index}.cache_control: cache_control can only be set on top-level content blocks"
            )


def _check_block(block: Block, path: str) -> Ttl:
    if path.startswith("tools."):
        if is_deferred(block):
            raise invalid_request(
                f"Tool '{block.get('name')}' cannot have both defer_loading=true and cache_control set. "
                "Tools with defer_loading cannot use prompt caching."
            )
    elif block["type"] in UNMARKABLE:
        raise invalid_request(f"{path}.{block['type']}.cache_control: Extra inputs are not permitted")
    elif _is_empty_text(block):
        raise invalid_request(f"{path}.text: cache_control cannot be set for empty text blocks")
    return _ttl(block["cache_control"], f"{path}.cache_control")


def _ttl(control: Any, path: str) -> Ttl:
    if not isinstance(control, dict):
        raise invalid_request(f"{path}: Input should be a valid dictionary")
    if control.get("type") != "ephemeral":
        raise invalid_request(f"{path}.type: Input should be 'ephemeral'")
    ttl = control.get("ttl", "5m")
    if ttl == "5m":
        return "5m"
    if ttl == "1h":
        return "1h"
    raise invalid_request(f"{path}.ttl: Input should be '5m' or '1h'")


def _check_count(found: int) -> None:
    if found > MARKERS_LIMIT:
        raise invalid_request(f"A maximum of {MARKERS_LIMIT} blocks with cache_control may be provided. Found {found}.")


def _check_order(markers: list[tuple[str, Ttl]]) -> None:
    shorter_seen = False
    for path, ttl in markers:
        if ttl == "1h" and shorter_seen:
            place = path if path == "cache_control" else f"{path}.cache_control"
            raise invalid_request(
                f"{place}.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control "
                "block. Note that blocks are processed in the following order: `tools`, `system`, `messages`."
            )
        shorter_seen = shorter_seen or ttl == "5m"


def _automatic(call: ApiRequest, prompt: PromptDigest, markers: list[Breakpoint]) -> Breakpoint | None:
    """Return the breakpoint for a top-level `cache_control`, on the last block that can have one.

    None without this parameter or such a block, or if the block has one of equal lifetime; `ApiError` if it differs.
    """
    control = call.params.get("cache_control")
    if control is None:
        return None
    ttl = _ttl(control, "cache_control")
    for index in reversed(range(len(prompt.blocks))):
        block = prompt.blocks[index]
        if index < prompt.system_start or (block["type"] not in UNMARKABLE and not _is_empty_text(block)):
            break
    else:
        return None
    marked = next((marker for marker in markers if marker.index == index), None)
    if marked is None:
        _check_count(len(markers) + 1)
        return Breakpoint(index=index, ttl=ttl)
    if marked.ttl != ttl:
        raise invalid_request(
            f"cache_control.ttl: the last cacheable block already has a cache_control with ttl='{marked.ttl}'"
        )
    return None


def _is_empty_text(block: Block) -> bool:
    return block["type"] == "text" and not block.get("text")

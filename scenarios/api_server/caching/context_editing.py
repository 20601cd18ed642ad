"""Context editing: removes old thinking and tool results from the prompt, in two ways that a request can choose.

`context_management` is a parameter of the real API. The client sends its complete history, and the server clears old
blocks before it counts and caches the prompt. So the cache cannot be used from the first cleared block on.

`cache_edits` is an addition of this server. A user message may contain the block `{"type": "cache_edits", "edits":
[{"type": "delete", "cache_reference": "toolu_..."}]}`. From this request on, the named tool results count no tokens.
They remain in the hashes, so the cache still finds the prefix that contains them.
"""

import itertools
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

import attrs
import msgspec

from coterie.scenarios.api_server.caching.token_count import count_block, count_blocks, is_deferred
from coterie.scenarios.api_server.request.api_request import ApiRequest, Block, RequestMessage
from coterie.scenarios.api_server.request.errors import invalid_request

CACHE_EDITS = "cache_edits"


def deleted_references(call: ApiRequest, beta: str | None) -> frozenset[str]:
    """Return the tool call ids of all tool results that `cache_edits` blocks of the request delete.

    *beta* is the beta header value that enables these blocks; without it, they are refused as an unknown type. Raises
    `ApiError` (400) for an invalid block. An id may be deleted more than once.
    """
    if not any(block["type"] == CACHE_EDITS for message in call.messages for block in message.content):
        return frozenset()
    deleted: set[str] = set()
    results: set[str] = set()
    for at, message in enumerate(call.messages):
        for index, block in enumerate(message.content):
            kind = block["type"]
            if kind == "tool_result":
                if isinstance(reference := block.get("tool_use_id"), str):
                    results.add(reference)
            elif kind == CACHE_EDITS:
                path = f"messages.{at}.content.{index}"
                _check_place(call, message.role, beta, path)
                references = _read_cache_edits(block, path)
                _check_known(references, results, call, path)
                deleted.update(references)
    return frozenset(deleted)


def references(block: Block) -> list[str]:
    """Return the tool call ids in one validated `cache_edits` block."""
    return [edit["cache_reference"] for edit in block["edits"]]


def _check_place(call: ApiRequest, role: str, beta: str | None, path: str) -> None:
    if beta is None or beta not in call.caller.betas:
        raise invalid_request(f"{path}: Input tag '{CACHE_EDITS}' does not match any of the expected tags")
    if role != "user":
        raise invalid_request(f"{path}: `{CACHE_EDITS}` blocks are only permitted in user messages")


def _read_cache_edits(block: Block, path: str) -> list[str]:
    edits = block.get("edits")
    if not isinstance(edits, list) or not edits:
        raise invalid_request(f"{path}.edits: Input should be a list of at least one edit")
    return [_read_cache_edit(edit, f"{path}.edits.{index}") for index, edit in enumerate(edits)]


def _read_cache_edit(edit: Any, path: str) -> str:
    if not isinstance(edit, dict):
        raise invalid_request(f"{path}: Input should be a valid dictionary")
    if edit.get("type") != "delete":
        raise invalid_request(f"{path}.type: Input should be 'delete'")
    reference = edit.get("cache_reference")
    if not isinstance(reference, str):
        raise invalid_request(f"{path}.cache_reference: Input should be a valid string")
    if extra := sorted(edit.keys() - {"type", "cache_reference"}):
        raise invalid_request(f"{path}.{extra[0]}: Extra inputs are not permitted")
    return reference


def _check_known(references_: list[str], results: set[str], call: ApiRequest, path: str) -> None:
    for index, reference in enumerate(references_):
        if reference not in results:
            place = f"{path}.edits.{index}.cache_reference"
            if reference in _blocks_by_id(call.messages, "tool_result", "tool_use_id"):
                raise invalid_request(f"{place}: the `tool_result` of {reference} must be before this block")
            raise invalid_request(f"{place}: no `tool_result` of {reference} is in this request")


BETA = "context-management-2025-06-27"
CLEAR_THINKING = "clear_thinking_20251015"
CLEAR_TOOL_USES = "clear_tool_uses_20250919"
PLACEHOLDER = "[This tool result was cleared to save context.]"
THINKING = frozenset({"thinking", "redacted_thinking"})

_Natural = Annotated[int, msgspec.Meta(ge=0)]


class _ThinkingTurns(msgspec.Struct, frozen=True, tag_field="type", tag="thinking_turns"):
    value: Annotated[int, msgspec.Meta(ge=1)]


class _AllTurns(msgspec.Struct, frozen=True, tag_field="type", tag="all"):
    pass


class _InputTokens(msgspec.Struct, frozen=True, tag_field="type", tag="input_tokens"):
    value: _Natural


class _ToolUses(msgspec.Struct, frozen=True, tag_field="type", tag="tool_uses"):
    value: _Natural


class _ClearThinking(msgspec.Struct, frozen=True, tag_field="type", tag=CLEAR_THINKING, forbid_unknown_fields=True):
    keep: _ThinkingTurns | _AllTurns | Literal["all"] = _ThinkingTurns(1)


class _ClearToolUses(msgspec.Struct, frozen=True, tag_field="type", tag=CLEAR_TOOL_USES, forbid_unknown_fields=True):
    trigger: _InputTokens | _ToolUses = _InputTokens(100_000)
    keep: _ToolUses = _ToolUses(3)
    clear_at_least: _InputTokens | None = None
    exclude_tools: list[str] | None = None
    clear_tool_inputs: bool | list[str] | None = None


_Edit = _ClearThinking | _ClearToolUses


@attrs.frozen(kw_only=True, eq=False)
class EditedConversation:
    """The messages of a request after context editing, the applied edits, and the token counts before and after."""

    messages: tuple[RequestMessage, ...]
    applied: tuple[dict[str, Any], ...]
    """One JSON object for each edit that changed the conversation, as in the response field `applied_edits`."""
    original_tokens: int
    edited_tokens: int


def apply_edits(call: ApiRequest, deleted: Collection[str] = ()) -> EditedConversation:
    """Apply the edits of `context_management` to the messages of *call*; without this parameter nothing changes.

    *deleted* are the ids of tool results that `cache_edits` deleted; they count no tokens, so they are not cleared.
    Raises `ApiError` (400) for a missing beta header or an invalid edit.
    """
    tools = [tool for tool in call.tools if not is_deferred(tool)]
    results = _blocks_by_id(call.messages, "tool_result", "tool_use_id") if deleted else {}
    gone = count_blocks(block for id_, block in results.items() if id_ in deleted)
    original = count_blocks(tools) + count_blocks(call.system) + _count(call.messages) - gone
    messages, tokens, applied = call.messages, original, []
    for edit in _read_edits(call):
        if isinstance(edit, _ClearThinking):
            messages, result = _clear_thinking(messages, edit)
        else:
            messages, result = _clear_tool_uses(messages, edit, tokens, deleted)
        if result is not None:
            applied.append(result)
            tokens -= result["cleared_input_tokens"]
    return EditedConversation(messages=messages, applied=tuple(applied), original_tokens=original, edited_tokens=tokens)


def clears_thinking(call: ApiRequest) -> bool:
    """True if `context_management` has an edit of thinking, even one that keeps all; default clearing is then off."""
    return any(isinstance(edit, _ClearThinking) for edit in _read_edits(call))


def starts_turn(message: RequestMessage) -> bool:
    """True if *message* starts a new turn of the user: it contains more than tool results and cache edits."""
    return message.role == "user" and any(
        block["type"] not in ("tool_result", CACHE_EDITS) for block in message.content
    )


def _read_edits(call: ApiRequest) -> list[_Edit]:
    value = call.params.get("context_management")
    if value is None:
        return []
    if BETA not in call.caller.betas:
        raise invalid_request("context_management: Extra inputs are not permitted")
    if not isinstance(value, dict):
        raise invalid_request("context_management: Input should be a valid dictionary")
    listed = value.get("edits") or []
    if not isinstance(listed, list):
        raise invalid_request("context_management.edits: Input should be a valid list")
    edits: list[_Edit] = []
    for index, edit in enumerate(listed):
        try:
            edits.append(msgspec.convert(edit, _Edit))
        except msgspec.ValidationError as exc:
            reason, _, place = str(exc).partition(" - at `$")
            raise invalid_request(f"context_management.edits.{index}{place.rstrip('`')}: {reason}") from exc
    kinds = [type(edit) for edit in edits]
    if len(set(kinds)) < len(kinds):
        raise invalid_request("context_management.edits: each type of edit may be given once")
    if _ClearThinking in kinds[1:]:
        raise invalid_request(f"context_management.edits: `{CLEAR_THINKING}` must be the first edit")
    return edits


def _count(messages: Sequence[RequestMessage]) -> int:
    return sum(count_blocks(message.content) for message in messages)


def _clear_thinking(
    messages: tuple[RequestMessage, ...], edit: _ClearThinking
) -> tuple[tuple[RequestMessage, ...], dict[str, Any] | None]:
    if not isinstance(edit.keep, _ThinkingTurns):
        return messages, None
    # A tool loop is one turn.
    turns = list(itertools.accumulate(int(starts_turn(message)) for message in messages))
    thoughtful = sorted({turn for turn, message in zip(turns, messages, strict=True) if _thinks(message)})
    cleared = set(thoughtful[: -edit.keep.value])
    if not cleared:
        return messages, None
    edited = tuple(
        without_thinking(message) if turn in cleared else message for turn, message in zip(turns, messages, strict=True)
    )
    return edited, {
        "type": CLEAR_THINKING,
        "cleared_thinking_turns": len(cleared),
        "cleared_input_tokens": _count(messages) - _count(edited),
    }


def without_thinking(message: RequestMessage) -> RequestMessage:
    """Return an assistant *message* without its thinking blocks; messages of other roles are returned unchanged."""
    if not _thinks(message):
        return message
    kept = tuple(block for block in message.content if block["type"] not in THINKING)
    return RequestMessage(role=message.role, content=kept)


def _thinks(message: RequestMessage) -> bool:
    return message.role == "assistant" and any(block["type"] in THINKING for block in message.content)


def _clear_tool_uses(
    messages: tuple[RequestMessage, ...], edit: _ClearToolUses, tokens: int, deleted: Collection[str]
) -> tuple[tuple[RequestMessage, ...], dict[str, Any] | None]:
    uses = {id_: use for id_, use in _blocks_by_id(messages, "tool_use", "id").items() if id_ not in deleted}
    if (len(uses) if isinstance(edit.trigger, _ToolUses) else tokens) <= edit.trigger.value:
        return messages, None
    replaced: dict[int, Block] = {}
    saved = cleared = 0
    results = _blocks_by_id(messages, "tool_result", "tool_use_id")
    excluded = edit.exclude_tools or ()
    pairs = [(use, results[id_]) for id_, use in uses.items() if id_ in results and use.get("name") not in excluded]
    for pair in pairs[: max(0, len(pairs) - edit.keep.value)]:
        savings = [_replace(block, edit, replaced) for block in pair]
        saved += sum(savings)
        cleared += any(savings)
    if not cleared or (edit.clear_at_least is not None and saved < edit.clear_at_least.value):
        return messages, None
    return tuple(_with(message, replaced) for message in messages), {
        "type": CLEAR_TOOL_USES,
        "cleared_tool_uses": cleared,
        "cleared_input_tokens": saved,
    }


def _blocks_by_id(messages: Sequence[RequestMessage], kind: str, key: str) -> dict[str, Block]:
    blocks = (block for message in messages for block in message.content if block["type"] == kind)
    return {block[key]: block for block in blocks if isinstance(block.get(key), str)}


def _replace(block: Block, edit: _ClearToolUses, replaced: dict[int, Block]) -> int:
    """Put a shorter copy of *block* (cleared result or input) in *replaced* by `id(block)`; return saved tokens."""
    if block["type"] == "tool_result":
        smaller = {**block, "content": [{"type": "text", "text": PLACEHOLDER}]}
    elif edit.clear_tool_inputs is True or block.get("name") in (edit.clear_tool_inputs or ()):
        smaller = {**block, "input": {}}
    else:
        return 0
    saving = count_block(block) - count_block(smaller)
    if saving > 0:
        replaced[id(block)] = smaller
    return max(0, saving)


def _with(message: RequestMessage, replaced: dict[int, Block]) -> RequestMessage:
    if not any(id(block) in replaced for block in message.content):
        return message
    return RequestMessage(role=message.role, content=tuple(replaced.get(id(block), block) for block in message.content))

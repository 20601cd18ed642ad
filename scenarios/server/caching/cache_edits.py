"""Deletion of tool results from a cached prefix by id, while the request keeps every byte it had.

A user message may hold `{"type": "cache_edits", "edits": [{"type": "delete", "cache_reference": "toolu_..."}]}`.
From the request that carries it on, the tool results it names count no tokens; they stay in the digest chain, so
the cache still finds the prefix that was written with them.
"""

from typing import Any

from coterie.scenarios.server.api.call import Block, Call
from coterie.scenarios.server.errors import ApiError, invalid_request

CACHE_EDITS = "cache_edits"


def deleted_references(call: Call, beta: str | None) -> frozenset[str]:
    """The ids of all tool results that the request's `cache_edits` blocks delete.

    *beta* names the header under which such blocks are known; without it they are an unknown block type.
    Raises `ApiError` (400) with the path of what is wrong. An id may be deleted more than once.
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
                references = _read_edits(block, path)
                _check_known(references, results, call, path)
                deleted.update(references)
    return frozenset(deleted)


def references(block: Block) -> list[str]:
    """The ids that one checked `cache_edits` block names."""
    return [edit["cache_reference"] for edit in block["edits"]]


def _check_place(call: Call, role: str, beta: str | None, path: str) -> None:
    if beta is None or beta not in call.caller.betas:
        raise invalid_request(f"{path}: Input tag '{CACHE_EDITS}' does not match any of the expected tags")
    if role != "user":
        raise invalid_request(f"{path}: `{CACHE_EDITS}` blocks are only permitted in user messages")


def _read_edits(block: Block, path: str) -> list[str]:
    edits = block.get("edits")
    if not isinstance(edits, list) or not edits:
        raise invalid_request(f"{path}.edits: Input should be a list of at least one edit")
    return [_read_edit(edit, f"{path}.edits.{index}") for index, edit in enumerate(edits)]


def _read_edit(edit: Any, path: str) -> str:
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


def _check_known(wanted: list[str], results: set[str], call: Call, path: str) -> None:
    for index, reference in enumerate(wanted):
        if reference not in results:
            raise _unknown(reference, call, f"{path}.edits.{index}.cache_reference")


def _unknown(reference: str, call: Call, path: str) -> ApiError:
    blocks = (block for message in call.messages for block in message.content)
    if any(block["type"] == "tool_result" and block.get("tool_use_id") == reference for block in blocks):
        return invalid_request(f"{path}: the `tool_result` of {reference} stands after this block")
    return invalid_request(f"{path}: no `tool_result` of {reference} is in this request")

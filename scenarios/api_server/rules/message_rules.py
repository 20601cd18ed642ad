"""Rules for messages: their roles, the positions of blocks, and empty content."""

from coterie.scenarios.api_server.request.api_request import ApiRequest, Block, RequestMessage
from coterie.scenarios.api_server.request.errors import invalid_request

NEWEST_VERSION = "2026-10-21"

OWNERS = {
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "server_tool_use": "assistant",
    "cache_edits": "user",
}
"""Role that a message must have to contain a block of each type; `tool_rules` checks tool calls and results."""

CONTINUABLE = frozenset({"server_tool_use", "compaction"})
"""Block types that mark a last assistant message as a paused reply sent back, not as a prefill (a started reply)."""


def first_message_is_from_user(call: ApiRequest) -> None:
    """Raise `ApiError` if the first message is from the assistant, unless it has a compaction block (a summary)."""
    first = call.messages[0]
    if first.role == "assistant" and not _holds(first, frozenset({"compaction"})):
        raise invalid_request('messages: first message must use the "user" role')


def prefill_is_allowed(call: ApiRequest) -> None:
    """Raise `ApiError` if the last message is a started assistant reply (prefill) and the model refuses prefills."""
    turns = [message for message in call.messages if message.role != "system"]
    if "prefill" not in call.model.refuses or not turns or turns[-1].role != "assistant":
        return
    if not _holds(turns[-1], CONTINUABLE):
        raise invalid_request(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )


def nothing_is_empty(call: ApiRequest) -> None:
    """Raise `ApiError` if a text block or a user or assistant message is empty, except in a last assistant message."""
    if any(_is_empty_text(block) for block in call.system):
        raise invalid_request("system: text content blocks must be non-empty")
    last = len(call.messages) - 1
    for number, message in enumerate(call.messages):
        if number == last and message.role == "assistant":
            return
        if not message.content and message.role != "system":
            raise invalid_request(
                f"messages.{number}: all messages must have non-empty content "
                "except for the optional final assistant message"
            )
        if any(_is_empty_text(block) for block in message.content):
            raise invalid_request("messages: text content blocks must be non-empty")


def block_positions_are_valid(call: ApiRequest) -> None:
    """Raise `ApiError` if a block other than a tool call or result is in a message of the wrong role."""
    is_newest = call.caller.version == NEWEST_VERSION
    for number, message in enumerate(call.messages):
        for index, block in enumerate(message.content):
            path, owner = f"messages.{number}.content.{index}", OWNERS.get(block["type"], message.role)
            if owner != message.role:
                raise invalid_request(f"{path}: `{block['type']}` blocks can only be in `{owner}` messages")
            if is_newest and (problem := _misplaced_since_newest(block, message.role)):
                raise invalid_request(f"{path}{problem}")


def _misplaced_since_newest(block: Block, role: str) -> str | None:
    if block["type"] == "document" and role == "assistant":
        return ": `document` blocks cannot stand directly in `assistant` messages"
    if block["type"] == "text" and role == "user" and block.get("citations"):
        return ".text.citations: `citations` must be empty in `user` messages"
    return None


def _holds(message: RequestMessage, kinds: frozenset[str]) -> bool:
    return any(block["type"] in kinds for block in message.content)


def _is_empty_text(block: Block) -> bool:
    return block["type"] == "text" and not block["text"]

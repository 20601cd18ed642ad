"""Rules over messages: roles, positions of blocks, empty content."""

from coterie.scenarios.api_server.request.api_request import ApiRequest, Block, RequestMessage
from coterie.scenarios.api_server.request.errors import invalid_request

NEWEST_VERSION = "2026-10-21"

OWNERS = {
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "server_tool_use": "assistant",
    "cache_edits": "user",
}
"""The one role whose messages may hold such a block; pairing sees to tool calls and results."""

CONTINUABLE = frozenset({"server_tool_use", "compaction"})
"""A last assistant message with one of these is a paused reply that is sent back, not a prefill."""


def first_message_is_from_user(call: ApiRequest) -> None:
    """The assistant begins only where a compaction block stands for what was said before."""
    first = call.messages[0]
    if first.role == "assistant" and not _holds(first, frozenset({"compaction"})):
        raise invalid_request('messages: first message must use the "user" role')


def prefill_is_allowed(call: ApiRequest) -> None:
    """Models that do not continue a begun reply need the user's message last."""
    spoken = [message for message in call.messages if message.role != "system"]
    if "prefill" not in call.model.refuses or not spoken or spoken[-1].role != "assistant":
        return
    if not _holds(spoken[-1], CONTINUABLE):
        raise invalid_request(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )


def nothing_is_empty(call: ApiRequest) -> None:
    """Messages have content and text blocks have text; only a last assistant message may be empty."""
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
    """Thinking is the assistant's; the newest version of the API also minds documents and citations."""
    is_newest = call.caller.version == NEWEST_VERSION
    for number, message in enumerate(call.messages):
        for index, block in enumerate(message.content):
            fault = _misplaced(block, message.role) or (is_newest and _misplaced_since_newest(block, message.role))
            if fault:
                raise invalid_request(f"messages.{number}.content.{index}{fault}")


def _misplaced(block: Block, role: str) -> str | None:
    owner = OWNERS.get(block["type"], role)
    return None if owner == role else f": `{block['type']}` blocks can only be in `{owner}` messages"


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

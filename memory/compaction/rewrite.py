"""Rewriting of earlier messages so that the API still accepts the conversation.

The API accepts thinking blocks only after the same bytes as before, so all thinking after a change is removed. A tool
result without a later reply requires the thinking of its call, so such a last round is converted to text.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from coterie.memory.compaction.conversation_view import Role, SegmentView

Message = tuple[Role, list[bytes]]
"""Role and content blocks (JSON) of a message."""

THINKING = frozenset({"thinking", "redacted_thinking"})
CALLED = "I made the calls that are listed next, with their results."


def rewrite(
    segments: Iterable[SegmentView], replacement: Callable[[SegmentView], bytes | None], *, has_changed: bool = False
) -> list[Message]:
    """Return the messages of *segments*, with each block replaced by the result of *replacement*; None removes a block.

    After the first changed block all thinking is removed. If that affects the last tool calls and no reply follows
    their results, these calls and results become text. *has_changed* is true if something before *segments* changed.
    Messages without blocks, tool definitions and the system prompt are omitted.
    """
    messages: list[list[tuple[SegmentView, bytes]]] = []
    lost_thought = False
    for segment in segments:
        if segment.role is None:
            continue
        if segment.opens_message:
            messages.append([])
            lost_thought = lost_thought and segment.role == "user"
        data = None if has_changed and segment.block_type in THINKING else replacement(segment)
        lost_thought = lost_thought or (data is None and segment.block_type in THINKING)
        has_changed = has_changed or data != segment.data
        if data is not None:
            messages[-1].append((segment, data))
    written = [message for message in messages if message]
    last = max((number for number, message in enumerate(written) if _role(message) == "assistant"), default=-1)
    answering = [block for message in written[last + 1 :] for block in message]
    # The API merges adjacent messages of one role, so the results may be in an earlier message than the last.
    is_open = last >= 0 and bool(answering) and answering[0][0].block_type == "tool_result"
    if lost_thought and is_open:
        return [*map(_plain, written[:last]), *_closed(written[last], answering)]
    return list(map(_plain, written))


_Written = Sequence[tuple[SegmentView, bytes]]


def _role(message: _Written) -> Role:
    role = message[0][0].role
    assert role is not None
    return role


def _plain(message: _Written) -> Message:
    return _role(message), [data for _, data in message]


def _closed(calling: _Written, answering: _Written) -> list[Message]:
    """Convert the last round to text: the assistant's text, then a user message with its tool calls and results."""
    said = [data for segment, data in calling if segment.block_type == "text"]
    calls = {segment.tool_use_id: msgspec.json.decode(data) for segment, data in calling if segment.tool_use_id}
    blocks: list[bytes] = []
    for segment, data in answering:
        if segment.block_type == "tool_result":
            blocks += _call_text(calls.get(segment.tool_use_id or "", {}), msgspec.json.decode(data))
        else:
            blocks.append(data)
    return [("assistant", said or [_text(CALLED)]), ("user", blocks)]


def _call_text(call: dict[str, Any], result: dict[str, Any]) -> list[bytes]:
    content = result.get("content", "")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    words = "\n".join(part["text"] for part in parts if part.get("type") == "text")
    arguments = msgspec.json.encode(call.get("input", {})).decode()
    outcome = "error" if result.get("is_error") else "result"
    text = f"<earlier-call>\n{call.get('name')} {arguments}\n<{outcome}>\n{words}\n</{outcome}>\n</earlier-call>"
    others = [msgspec.json.encode(part) for part in parts if part.get("type") != "text"]
    return [_text(text), *others]


def _text(text: str) -> bytes:
    return msgspec.json.encode({"type": "text", "text": text})

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coterie.agents.errors import ModelFailed, ModelOverloaded, ReplyMalformed
from coterie.agents.loop.model.reply import Reply, ReplyBuilder

START = {
    "type": "message_start",
    "message": {"id": "msg_1", "model": "m", "content": [], "usage": {"input_tokens": 3, "output_tokens": 1}},
}
END = [
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]


def build(*events: dict[str, Any]) -> Reply:
    builder = ReplyBuilder()
    for event in (START, *events, *END):
        builder.feed(json.dumps(event).encode())
    return builder.build()


def block(start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": 0, "content_block": start},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
    ]


def tool(*pieces: str) -> list[dict[str, Any]]:
    start = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
    return block(start, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


def test_tool_input_keeps_streamed_text() -> None:
    r"""Spaces, key order, `1.0` and `\u00e9` would not survive a parse and a dump."""
    text = '{ "path":  "caf\\u00e9",\n"n": 1.0, "a": 1e5 }'
    reply = build(*tool("", text[:7], text[7:]))
    assert text.encode() in reply.blocks[0].data
    assert reply.tool_calls[0]["input"] == {"path": "café", "n": 1.0, "a": 1e5}


def test_events_and_deltas_of_a_later_api_are_ignored() -> None:
    later = block({"type": "text", "text": "x"}, {"type": "glow_delta", "glow": 1})
    assert build({"type": "ping"}, {"type": "weather"}, *later).text == "x"


@pytest.mark.parametrize(("kind", "error"), [("overloaded_error", ModelOverloaded), ("api_error", ModelFailed)])
def test_error_event_is_raised_with_its_fields(kind: str, error: type[Exception]) -> None:
    builder = ReplyBuilder()
    builder.feed(json.dumps(START).encode())
    with pytest.raises(error) as caught:
        builder.feed(json.dumps({"type": "error", "error": {"type": kind, "message": "no"}}).encode())
    assert (caught.value.kind, caught.value.begun) == (kind, True)  # type: ignore[attr-defined]  # both are ModelError


def test_incomplete_stream_gives_no_reply() -> None:
    builder = ReplyBuilder()
    builder.feed(json.dumps(START).encode())
    with pytest.raises(ReplyMalformed, match="before the reply"):
        builder.build()


@given(
    st.one_of(st.binary(max_size=60), st.recursive(st.none() | st.text(max_size=8), st.lists).map(repr).map(str.encode))
)
@example(b'{"type":"","":0}')
def test_garbage_raises_only_reply_malformed(data: bytes) -> None:
    builder = ReplyBuilder()
    with contextlib.suppress(ReplyMalformed, ModelFailed):
        event = builder.feed(data)
        # Other input is an event of an unknown type, which is ignored.
        assert isinstance(event["type"], str)
    assert not builder.has_begun

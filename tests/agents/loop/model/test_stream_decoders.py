"""Comparison of our stream decoder with the SDK's typed events, field by field."""

import contextlib
import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import anthropic
import pytest
from anthropic._streaming import SSEDecoder
from anthropic.lib.streaming._messages import accumulate_event
from hypothesis import example, given
from hypothesis import strategies as st

from coterie.agents.errors import ModelFailed, ModelOverloaded, ReplyMalformed
from coterie.agents.loop.model.catalog import load_models
from coterie.agents.loop.model.reply import Reply, ReplyBuilder, SseParser
from tests.agents.conversation_blocks import CHARACTERS, RAW_INPUTS
from tests.examples import examples

Event = dict[str, Any]
Facts = dict[str, Any]
"""Fields of a reply that both decoders report, under the API's names."""

MODEL = load_models().get("claude-opus-5-5")


def facts_of(reply: Reply) -> Facts:
    return {
        "id": reply.message_id,
        "model": reply.model,
        "content": [block.value for block in reply.blocks],
        "stop_reason": reply.stop_reason,
        "stop_details": reply.stop_details,
        "usage": reply.raw_usage,
    }


def typed_facts(message: anthropic.BaseModel) -> Facts:
    members = message.to_dict()
    names = ("id", "model", "content", "stop_reason", "stop_details", "usage")
    return {name: members.get(name) for name in names}


START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL.id,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 1},
    },
}


def ending(stop_reason: str = "end_turn", details: Event | None = None, **usage: int) -> list[Event]:
    delta = {"stop_reason": stop_reason, "stop_sequence": None, "stop_details": details}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9, **usage}},
        {"type": "message_stop"},
    ]


def block(index: int, start: Event, *deltas: Event) -> list[Event]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text_deltas(*pieces: str) -> list[Event]:
    return [{"type": "text_delta", "text": piece} for piece in pieces]


def input_deltas(*pieces: str) -> list[Event]:
    return [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


def call(*pieces: str) -> tuple[Event, ...]:
    return {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}, *input_deltas(*pieces)


CITED = {
    "type": "citations_delta",
    "citation": {
        "type": "char_location",
        "cited_text": "So it is.",
        "document_index": 0,
        "document_title": None,
        "start_char_index": 0,
        "end_char_index": 9,
        "file_id": None,
    },
}
TEXT = {"type": "text", "text": ""}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
PING: Event = {"type": "ping"}
LATER: Event = {"type": "weather", "index": 0, "delta": {"type": "text_delta", "text": "rain"}}
"""An event of an unknown type."""

STREAMED: dict[str, list[Event]] = {
    "pings everywhere": [PING, START, PING, *block(0, TEXT, *text_deltas("a", "b")), PING, *ending(), PING],
    "a delta of a later API": [START, *block(0, TEXT, {"type": "glow_delta", "glow": 1}, *text_deltas("a")), *ending()],
    "citations where none were begun": [START, *block(0, TEXT, CITED, CITED), *ending()],
    "text in the first event of its block": [START, *block(0, {**TEXT, "text": "a"}, *text_deltas("b")), *ending()],
    "a call of the server's own tool": [START, *block(0, SEARCH, *input_deltas('{"query":', ' "x"}')), *ending()],
    "only empty pieces": [START, *block(0, *call("", "", "")), *ending("tool_use")],
    "blocks whose deltas alternate": [
        START,
        *block(0, TEXT)[:1],
        *block(1, *call())[:1],
        *block(0, TEXT, *text_deltas("a"))[1:2],
        *block(1, *call('{"a":1}'))[1:2],
        *block(0, TEXT, *text_deltas("b"))[1:],
        *block(1, *call())[-1:],
        *ending("tool_use"),
    ],
    "a refusal": [START, *ending("refusal", {"type": "refusal", "category": "bio", "explanation": "Harm."})],
    "usage that only the end knows": [START, *ending(input_tokens=30, cache_creation_input_tokens=5)],
    **{
        f"input {raw.decode()}": [START, *block(0, *call(raw.decode()[:9], raw.decode()[9:])), *ending("tool_use")]
        for raw in RAW_INPUTS
    },
}


def lines(event: Event, newline: str = "\n", indent: int | None = None) -> str:
    data = json.dumps(event, ensure_ascii=False, indent=indent).split("\n")
    return newline.join([f"event: {event['type']}", *(f"data: {line}" for line in data), "", ""])


def read(chunks: Iterable[bytes]) -> Reply:
    cutter, builder = SseParser(), ReplyBuilder()
    for chunk in chunks:
        for data in cutter.feed(chunk):
            builder.feed(data)
    return builder.build()


def build(chunks: Iterable[bytes]) -> Facts:
    reply = read(chunks)
    assert all(block.is_whole for block in reply.blocks)
    return facts_of(reply)


def accumulate(chunks: Iterable[bytes]) -> Facts:
    """Accumulate events as `AsyncMessageStream` does, without a connection."""
    message, buffers = None, dict[int, bytes]()
    for sent in SSEDecoder().iter_bytes(iter(chunks)):
        if sent.event in (None, "ping") or (message is None and sent.event != "message_start"):
            continue
        message = accumulate_event(event=sent.json(), current_snapshot=message, json_bufs=buffers)
    assert message is not None
    return typed_facts(message)


def test_cut_off_call_is_omitted_although_sdk_returns_it() -> None:
    events = [START, *block(0, *call('{"path": "a.py", "te')), *ending("max_tokens")]
    chunks = [lines(event).encode() for event in events]
    reply, typed = read(chunks), accumulate(chunks)
    assert typed["content"][0]["input"] == {"path": "a.py"}
    assert (reply.stop_reason, reply.tool_calls) == ("max_tokens", ())
    assert not reply.blocks[0].is_whole
    typed["content"][0]["input"] = {}
    assert facts_of(reply) == typed


@pytest.mark.parametrize("case", STREAMED)
def test_both_decoders_agree_on_unscriptable_replies(case: str) -> None:
    chunks = [lines(event).encode() for event in STREAMED[case]]
    assert build(chunks) == accumulate(chunks)


@st.composite
def pieces(draw: st.DrawFn, whole: str) -> list[str]:
    """Return a text in parts, some of them empty."""
    cuts = draw(st.lists(st.integers(0, len(whole)), max_size=5).map(sorted))
    return [whole[a:b] for a, b in itertools.pairwise([0, *cuts, len(whole)])]


WORDS = st.text(CHARACTERS, max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
INPUT_TEXT = st.one_of(
    st.builds(
        json.dumps,
        st.dictionaries(WORDS, JSON, max_size=4),
        ensure_ascii=st.booleans(),
        indent=st.none() | st.integers(0, 2),
    ),
    st.sampled_from([raw.decode() for raw in RAW_INPUTS]),
)
NOISE = st.lists(st.sampled_from([PING, LATER]), max_size=2)


@st.composite
def blocks(draw: st.DrawFn, index: int) -> list[Event]:
    match draw(st.sampled_from(["text", "cited", "thinking", "redacted", "call"])):
        case "text":
            return block(index, TEXT, *text_deltas(*draw(WORDS.flatmap(pieces))))
        case "cited":
            return block(index, {**TEXT, "citations": []}, *text_deltas(*draw(WORDS.flatmap(pieces))), CITED)
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in draw(WORDS.flatmap(pieces))]
            signature = {"type": "signature_delta", "signature": "c2ln"}
            return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas, signature)
        case "redacted":
            return block(index, {"type": "redacted_thinking", "data": draw(WORDS)})
        case _:
            return block(index, *call(*draw(INPUT_TEXT.flatmap(pieces))))


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Return a complete stream, with unknown events between the known ones."""
    said = [event for index in range(draw(st.integers(0, 4))) for event in draw(blocks(index))]
    reason = draw(st.sampled_from(["end_turn", "tool_use", "max_tokens", "pause_turn"]))
    newline, indent = draw(st.sampled_from(["\n", "\r\n", "\r"])), draw(st.none() | st.integers(0, 1))
    events: list[Event] = [START, *said, *ending(reason)]
    sent: list[str] = []
    for event in events:
        sent += [lines(noise, newline) for noise in draw(NOISE)]
        sent.append(draw(st.sampled_from(["", f": a comment{newline}{newline}", newline, f"retry: 3{newline}"])))
        sent.append(lines(event, newline, indent))
    return "".join(sent).encode()


def cut(stream: bytes, places: Sequence[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


@pytest.mark.slow
@examples(50)
@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_both_decoders_agree_for_any_chunk_boundaries(stream: bytes, places: list[int]) -> None:
    chunks = cut(stream, places)
    single = [stream[index : index + 1] for index in range(len(stream))]
    assert build(chunks) == accumulate(chunks) == build([stream]) == build(single)


@pytest.mark.parametrize(("kind", "error"), [("overloaded_error", ModelOverloaded), ("api_error", ModelFailed)])
def test_incomplete_stream_or_error_event_gives_no_reply(kind: str, error: type[Exception]) -> None:
    builder = ReplyBuilder()
    builder.feed(json.dumps(START).encode())
    with pytest.raises(ReplyMalformed, match="before the reply"):
        builder.build()
    with pytest.raises(error) as caught:
        builder.feed(json.dumps({"type": "error", "error": {"type": kind, "message": "no"}}).encode())
    assert (caught.value.kind, caught.value.begun) == (kind, True)  # type: ignore[attr-defined]  # both are ModelError


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

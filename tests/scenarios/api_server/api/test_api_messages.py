"""`POST /v1/messages` over HTTP: complete and streamed replies are equal."""

import itertools
from typing import Any

import pytest

from coterie.scenarios.api_server.api.response_delivery import CHARACTERS_PER_DELTA
from tests.embedded_server import open_served
from tests.scenarios.api_server.api.api_client import ask, named, open_strict_sdk, request
from tests.scenarios.api_server.request_samples import text, tool, user

LONG = "Grüße, 世界. " * 20
RICH = f"""
default:
  - thinking: "First I look, then I leap. {"hm " * 30}"
    text: "{LONG}"
    tools:
      - Read: {{path: "{"a/" * 40}", lines: [1, 2.5, null, true]}}
      - Bash: {{}}
    times: always
"""
FIELDS: dict[str, Any] = {"thinking": {"type": "adaptive"}, "tools": [tool("Read"), tool("Bash")]}
NAMED = named("writer")


@pytest.mark.slow
async def test_every_way_of_asking_gives_the_same_message() -> None:
    """Whole and streamed, through the plain and the beta namespace, with the SDK's types enforced."""
    async with open_served(RICH) as served, open_strict_sdk(served) as client:
        params: dict[str, Any] = {**request(), **FIELDS, "extra_headers": NAMED}
        whole = await client.messages.create(**params)
        async with client.messages.stream(**params) as stream:
            streamed = await stream.get_final_message()
        beta = await client.beta.messages.create(**params)
        async with client.beta.messages.stream(**params) as beta_stream:
            beta_streamed = await beta_stream.get_final_message()
    content = [block.to_dict() for block in whole.content]
    assert [block["type"] for block in content] == ["thinking", "text", "tool_use", "tool_use"]
    for other in (streamed, beta, beta_streamed):
        assert other.id == whole.id
        assert [_without_parsed(block.to_dict()) for block in other.content] == content
        assert other.stop_reason == whole.stop_reason == "tool_use"
        assert other.usage.input_tokens == whole.usage.input_tokens
        assert other.usage.output_tokens == whole.usage.output_tokens


def _without_parsed(block: dict[str, Any]) -> dict[str, Any]:
    """Streams of the SDK add what they parsed from a text."""
    return {key: value for key, value in block.items() if key != "parsed_output"}


async def test_a_stream_has_the_documented_order_and_the_figures_of_the_whole_answer() -> None:
    async with open_served(RICH) as served:
        whole = (await ask(served, request(**FIELDS), **NAMED)).json
        streamed = await ask(served, request(**FIELDS, stream=True), **NAMED)
    assert streamed.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = streamed.events
    assert events[-2]["usage"] == whole["usage"]
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None, "stop_details": None}
    nothing = dict.fromkeys(("stop_reason", "stop_sequence", "stop_details"))
    opening = {**whole, **nothing, "content": [], "usage": {**whole["usage"], "output_tokens": 1}}
    assert events[0]["message"] == opening
    order = [kind for kind, _ in itertools.groupby(event["type"] for event in events)]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    first = ["content_block_start", "ping", "content_block_delta", "content_block_stop"]
    assert order == ["message_start", *first, *block, *block, *block, "message_delta", "message_stop"]


async def test_deltas_are_small_and_of_their_block() -> None:
    """A signature ends its thinking, and the first piece of a tool's input is empty."""
    async with open_served(RICH) as served:
        events = (await ask(served, request(**FIELDS, stream=True), **NAMED)).events
    deltas: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        if event["type"] == "content_block_delta":
            deltas.setdefault(event["index"], []).append(event["delta"])
    kinds = {index: [kind for kind, _ in itertools.groupby(d["type"] for d in of)] for index, of in deltas.items()}
    tool_input = ["input_json_delta"]
    assert kinds == {0: ["thinking_delta", "signature_delta"], 1: ["text_delta"], 2: tool_input, 3: tool_input}
    assert len(deltas[1]) > 3
    assert all(len(delta["text"]) <= CHARACTERS_PER_DELTA for delta in deltas[1])
    assert [delta["partial_json"] for delta in deltas[3]] == ["", "{}"]
    assert deltas[2][0]["partial_json"] == ""


async def test_unknown_fields_are_tolerated_wherever_they_stand() -> None:
    block = text("hello", future={"a": [1]})
    body = {**request(), "messages": [{**user(block), "mood": "good"}], "nonsense": {"deep": [None, 1.5]}}
    async with open_served() as served:
        assert (await ask(served, body)).status == 200
        assert (await ask(served, body, path="/v1/messages?beta=true&other=1")).status == 200
        del body["max_tokens"]
        assert (await ask(served, body, path="/v1/messages/count_tokens")).status == 200

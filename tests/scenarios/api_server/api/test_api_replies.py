"""Replies over HTTP, whole and streamed: stop reasons, structured output, thinking and events."""

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from coterie.agents.loop.model.catalog import load_models
from coterie.scenarios.api_server.api.response_delivery import CHARACTERS_PER_DELTA
from tests.embedded_server import Served, open_served
from tests.scenarios.api_server.api.api_client import ask, named, open_strict_sdk, request, script_replying
from tests.scenarios.api_server.request_samples import assistant, sized, text, tool, tool_result, user

CALLS = 'default: [{text: "I look.", tools: [{Read: {path: "a long path to a file"}}], times: always}]'


async def test_a_refusal_says_why() -> None:
    script = script_replying("no", stop="refusal", refusal={"category": "cyber", "explanation": "no exploits"})
    details = {"type": "refusal", "category": "cyber", "explanation": "no exploits"}
    async with open_served(script) as served, open_strict_sdk(served) as client:
        params: dict[str, Any] = request()
        message = await client.messages.create(**params)
        assert message.stop_details is not None
        assert message.stop_details.to_dict() == details
        events = (await ask(served, request(stream=True))).events
    assert events[0]["message"]["stop_details"] is None
    assert events[-2]["delta"]["stop_details"] == details


@pytest.mark.parametrize(
    ("script", "fields", "content", "stop_reason"),
    [
        (script_replying("done"), {}, [text("done")], "end_turn"),
        (script_replying("more", stop="pause_turn"), {}, [text("more")], "pause_turn"),
        (
            script_replying("full", stop="model_context_window_exceeded"),
            {},
            [text("full")],
            "model_context_window_exceeded",
        ),
        (script_replying("no", stop="refusal"), {}, [text("no")], "refusal"),
        (script_replying("ä€" * 20), {"max_tokens": 2}, [text("ä€ä")], "max_tokens"),
        (script_replying("x" * 40), {"max_tokens": 10}, [sized(10)], "end_turn"),
        (script_replying("x" * 40), {"max_tokens": 9}, [sized(9)], "max_tokens"),
        (CALLS, {"max_tokens": 2}, [text("I look.")], "max_tokens"),
        (CALLS, {"stop_sequences": ["I look"]}, [], "stop_sequence"),
        (script_replying("one two three two"), {"stop_sequences": ["three", " two"]}, [text("one")], "stop_sequence"),
    ],
)
async def test_reply_ends_as_scripted_or_cut_whole_and_streamed(
    script: str, fields: dict[str, Any], content: list[Any], stop_reason: str
) -> None:
    async with open_served(script) as served:
        message = (await ask(served, request(tools=[tool()], **fields))).json
        delta = (await ask(served, request(tools=[tool()], stream=True, **fields))).events[-2]["delta"]
    assert (message["content"], message["stop_reason"]) == (content, stop_reason)
    assert message["usage"]["output_tokens"] == sum(-(-len(block["text"].encode()) // 4) for block in content)
    assert delta == {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    assert message["stop_sequence"] == (
        {0: "I look", 1: " two"}[len(content)] if stop_reason == "stop_sequence" else None
    )


async def test_max_tokens_cuts_a_tool_call_in_the_middle_of_its_json() -> None:
    async with open_served(CALLS) as served:
        body = request(max_tokens=5, tools=[tool()])
        whole = (await ask(served, body)).json
        events = (await ask(served, {**body, "stream": True})).events
    assert [block["type"] for block in whole["content"]] == ["text", "tool_use"]
    assert whole["content"][1]["input"] == {}
    written = "".join(event["delta"].get("partial_json", "") for event in events if "delta" in event)
    assert written
    assert '{"path":"a long path to a file"}'.startswith(written)
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(written)
    assert events[-2]["delta"]["stop_reason"] == whole["stop_reason"] == "max_tokens"
    assert events[-2]["usage"]["output_tokens"] == 5


async def test_max_tokens_within_thinking_counts_as_thinking() -> None:
    script = "default: [{thinking: 'a long thought that does not end soon', text: so}]"
    async with open_served(script) as served:
        message = (await ask(served, request(max_tokens=3, thinking={"type": "adaptive"}))).json
    assert [block["thinking"] for block in message["content"]] == ["a long thoug"]
    assert message["usage"]["output_tokens_details"] == {"thinking_tokens": 3}


@pytest.mark.parametrize("is_strict", [True, False])
async def test_a_full_window_ends_the_reply_or_refuses_the_prompt(*, is_strict: bool, tmp_path: Path) -> None:
    """With one model whose window holds a hundred tokens."""
    path = tmp_path / "models.toml"
    await trio.Path(path).write_text("[models.claude-opus-5]\nwindow = 100\n")
    async with open_served(script_replying("x" * 400), models=load_models(path), is_strict=is_strict) as served:
        for tokens, limit, rest, reason in (
            (60, 1000, [sized(40)], "model_context_window_exceeded"),
            (60, 10, [sized(10)], "max_tokens"),
            (100, 1000, [], "model_context_window_exceeded"),
        ):
            message = (await ask(served, request(messages=[user(sized(tokens))], max_tokens=limit))).json
            assert (message["content"], message["stop_reason"]) == (rest, reason)
            assert message["usage"]["output_tokens"] == (len(rest[0]["text"]) // 4 if rest else 0)
        for url in ("/v1/messages", "/v1/messages/count_tokens"):
            answer = await ask(served, request(messages=[user(sized(101))]), path=url)
            assert (answer.status, answer.error) == (400, "prompt is too long: 101 tokens > 100 maximum")


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FORMAT: dict[str, Any] = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
LOOSE = tool("Plan", input_schema=SCHEMA)
STRICT = tool("Plan", strict=True, input_schema=SCHEMA)
GOOD = '{"city": "Oslo", "days": [1, 2]}'


def calling(name: str, **arguments: Any) -> str:
    return msgspec.json.encode({"default": [{"tools": [{name: arguments}]}]}).decode()


BUILT_IN = [{"type": "bash_20250124", "name": "bash", "strict": True}, {"type": "mcp_toolset", "strict": True}]
NO_JSON = "script reply default[1] is not the JSON that output_config.format asks for"
BROKEN = "script reply default[1] does not satisfy output_config.format: $: required property"
WRONG_CALL = "script reply default[1] calls Plan with input that breaks its strict schema: $: required property 'days'"


@pytest.mark.parametrize(
    ("script", "fields", "words"),
    [
        (script_replying(GOOD), FORMAT, None),
        (script_replying("Oslo, for two days"), FORMAT, NO_JSON),
        (script_replying('{"city": "Oslo"}'), FORMAT, BROKEN),
        (script_replying('{"city": "Oslo", "days": ["one"]}'), FORMAT, "$.days[0]: expected integer, found string"),
        (script_replying('{"city": "Oslo", "days": [], "more": 1}'), FORMAT, "$: property 'more' is not allowed"),
        (script_replying("[" * 100_000), {**FORMAT, "max_tokens": 100_000}, NO_JSON),
        (script_replying("no", stop="refusal"), FORMAT, None),
        (script_replying(GOOD), {**FORMAT, "max_tokens": 2}, None),
        (calling("Read", path="a"), {**FORMAT, "tools": [tool("Read")]}, None),
        (calling("Plan", city="Oslo", days=[1]), {"tools": [STRICT]}, None),
        (calling("Plan", city="Oslo"), {"tools": [STRICT]}, WRONG_CALL),
        (calling("Plan", nonsense=1), {"tools": [LOOSE]}, None),
        (calling("bash", command="ls"), {"tools": BUILT_IN}, None),
    ],
)
async def test_a_reply_that_breaks_its_schema_is_the_scripts_fault_if_strict(
    script: str, fields: dict[str, Any], words: str | None
) -> None:
    async with open_served(script) as served:
        answer = await ask(served, request(**fields))
        assert (answer.status, served.requests[0]["reply"]) == (400 if words else 200, "default[1]")
        assert words is None or words in answer.error
    async with open_served(script, is_strict=False) as served:
        assert (await ask(served, request(**fields))).status == 200


async def test_the_older_output_format_is_checked_too() -> None:
    async with open_served(script_replying("Oslo")) as served:
        older = request(output_format=FORMAT["output_config"]["format"])
        assert NO_JSON[:40] in (await ask(served, older, anthropic_version="2023-06-01")).error


BINDING = "claude-opus-5-5"
FREE = "claude-opus-5"
ADAPTIVE = {"type": "adaptive"}
OMITTED = {"type": "adaptive", "display": "omitted"}
TALK = "default: [{thinking: 'hm, hm', text: so, times: always}]"
LOOP = "default: [{thinking: 'hm, hm', tools: [{Read: {path: a}}], times: always}]"


async def reply(served: Served, messages: list[Any], **fields: Any) -> list[dict[str, Any]]:
    answer = await ask(served, thinking_request(messages, **fields))
    assert answer.status == 200, answer.body
    content: list[dict[str, Any]] = answer.json["content"]
    return content


def thinking_request(messages: list[Any], **fields: Any) -> dict[str, Any]:
    return request(**{"messages": messages, "thinking": ADAPTIVE, "tools": [tool()], **fields})


@pytest.mark.parametrize(
    ("model", "config", "is_shown"),
    [
        (FREE, None, False),
        (FREE, ADAPTIVE, True),
        (FREE, {"type": "disabled"}, False),
        (BINDING, None, True),
        ("claude-haiku-4-5", None, False),
        ("claude-haiku-4-5", {"type": "enabled", "budget_tokens": 1024}, True),
    ],
)
async def test_thinking_is_there_where_it_is_on(model: str, config: Any, *, is_shown: bool) -> None:
    async with open_served(TALK) as served:
        content = await reply(served, [user(text("why?"))], model=model, thinking=config, max_tokens=2000)
        usage = served.requests[0]["usage"]
    assert [block["type"] for block in content] == (["thinking", "text"] if is_shown else ["text"])
    assert usage["output_tokens_details"]["thinking_tokens"] == (2 if is_shown else 0)


async def test_omitted_thinking_is_a_signature_alone() -> None:
    async with open_served(TALK) as served:
        body = thinking_request([user(text("why?"))], thinking=OMITTED)
        block = (await ask(served, body)).json["content"][0]
        events = (await ask(served, {**body, "stream": True})).events
    assert block["thinking"] == ""
    assert block["signature"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta" and event["index"] == 0]
    assert deltas == [{"type": "signature_delta", "signature": block["signature"]}]


async def test_signatures_outlive_the_server_but_not_its_seed() -> None:
    asked = user(text("why?"))
    async with open_served(TALK, seed=1) as served:
        said = await reply(served, [asked])
    history = [asked, assistant(*said), user(text("and?"))]
    async with open_served(TALK, seed=1) as served:
        await reply(served, history)
    async with open_served(TALK, seed=2) as served:
        answer = await ask(served, thinking_request(history))
        assert answer.error == "messages.1.content.0: Invalid `signature` in `thinking` block"


@pytest.mark.parametrize("is_strict", [True, False])
async def test_only_a_strict_server_wants_the_thinking_of_a_tool_loop_back(*, is_strict: bool) -> None:
    async with open_served(LOOP, is_strict=is_strict) as served:
        asked = user(text("look"))
        thought, call = await reply(served, [asked])
        for back, is_changed in (([thought, call], False), ([call], True), ([thought, thought, call], True)):
            history = [asked, assistant(*back), user(tool_result(call["id"]))]
            answer = await ask(served, thinking_request(history))
            assert answer.status == (400 if is_strict and is_changed else 200)


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
    deltas: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        if event["type"] == "content_block_delta":
            deltas.setdefault(event["index"], []).append(event["delta"])
    kinds = {index: [kind for kind, _ in itertools.groupby(d["type"] for d in of)] for index, of in deltas.items()}
    tool_input = ["input_json_delta"]
    assert kinds == {0: ["thinking_delta", "signature_delta"], 1: ["text_delta"], 2: tool_input, 3: tool_input}
    assert len(deltas[1]) > 3
    assert all(len(delta["text"]) <= CHARACTERS_PER_DELTA for delta in deltas[1])
    assert [delta["partial_json"] for delta in deltas[3]] == ["", "{}"], "the first piece of an input is empty"


async def test_unknown_fields_are_tolerated_wherever_they_stand() -> None:
    block = text("hello", future={"a": [1]})
    body = {**request(), "messages": [{**user(block), "mood": "good"}], "nonsense": {"deep": [None, 1.5]}}
    async with open_served() as served:
        assert (await ask(served, body)).status == 200
        assert (await ask(served, body, path="/v1/messages?beta=true&other=1")).status == 200
        del body["max_tokens"]
        assert (await ask(served, body, path="/v1/messages/count_tokens")).status == 200

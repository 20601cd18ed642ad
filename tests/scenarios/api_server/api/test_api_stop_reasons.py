"""Stop reasons over HTTP: the end of a reply and its remaining content."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from coterie.agents.loop.model.catalog import load_models
from tests.embedded_server import open_served
from tests.scenarios.api_server.api.api_client import ask, open_strict_sdk, request, script_replying
from tests.scenarios.api_server.request_samples import sized, text, tool, user

CALLS = 'default: [{text: "I look.", tools: [{Read: {path: "a long path to a file"}}], times: always}]'


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (script_replying("done"), "end_turn"),
        (CALLS, "tool_use"),
        (script_replying("more to come", stop="pause_turn"), "pause_turn"),
        (script_replying("enough", stop="model_context_window_exceeded"), "model_context_window_exceeded"),
        (script_replying("no", stop="refusal"), "refusal"),
    ],
)
async def test_scripted_stop_reason_is_sent_whole_and_streamed(script: str, expected: str) -> None:
    async with open_served(script) as served, open_strict_sdk(served) as client:
        params: dict[str, Any] = request(tools=[tool()])
        assert (await client.messages.create(**params)).stop_reason == expected
        async with client.messages.stream(**params) as stream:
            assert (await stream.get_final_message()).stop_reason == expected


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
        pytest.param(script_replying("ä€" * 20), {"max_tokens": 2}, [text("ä€ä")], "max_tokens", id="characters"),
        pytest.param(script_replying("x" * 40), {"max_tokens": 10}, [sized(10)], "end_turn", id="just fits"),
        pytest.param(script_replying("x" * 40), {"max_tokens": 9}, [sized(9)], "max_tokens", id="one too many"),
        pytest.param(CALLS, {"max_tokens": 2}, [text("I look.")], "max_tokens", id="before a block"),
        pytest.param(CALLS, {"stop_sequences": ["I look"]}, [], "stop_sequence", id="a stop sequence"),
    ],
)
async def test_reply_is_cut_and_later_blocks_left_out(
    script: str, fields: dict[str, Any], content: list[Any], stop_reason: str
) -> None:
    async with open_served(script) as served:
        message = (await ask(served, request(tools=[tool()], **fields))).json
    assert (message["content"], message["stop_reason"]) == (content, stop_reason)
    assert message["usage"]["output_tokens"] == fields.get("max_tokens", 0)


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


async def test_the_earliest_stop_sequence_ends_the_text() -> None:
    async with open_served(script_replying("one two three two")) as served:
        body = request(stop_sequences=["three", " two", "absent"])
        message = (await ask(served, body)).json
        delta = (await ask(served, {**body, "stream": True})).events[-2]["delta"]
    assert message["content"] == [text("one")]
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", " two")
    assert delta == {"stop_reason": "stop_sequence", "stop_sequence": " two", "stop_details": None}
    assert message["usage"]["output_tokens"] == 1


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

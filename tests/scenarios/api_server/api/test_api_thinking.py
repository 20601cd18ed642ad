"""Thinking over HTTP: when it is shown, and how it must come back."""

from typing import Any

import pytest

from tests.embedded_server import Served, open_served
from tests.scenarios.api_server.api.api_client import ask, request
from tests.scenarios.api_server.request_samples import assistant, text, tool, tool_result, user

BINDING = "claude-opus-5-5"
FREE = "claude-opus-5"
ADAPTIVE = {"type": "adaptive"}
OMITTED = {"type": "adaptive", "display": "omitted"}
TALK = "default: [{thinking: 'hm, hm', text: so, times: always}]"
LOOP = "default: [{thinking: 'hm, hm', tools: [{Read: {path: a}}], times: always}]"
CANNOT_BE_MODIFIED = "blocks in the latest assistant message cannot be modified"


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
async def test_a_strict_server_wants_the_thinking_of_a_tool_loop_back_unchanged(*, is_strict: bool) -> None:
    async with open_served(LOOP, is_strict=is_strict) as served:
        asked = user(text("look"))
        thought, call = await reply(served, [asked])
        edited = {**thought, "thinking": "aha"}
        for back in ([thought, call], [call], [edited, call], [thought, thought, call]):
            history = [asked, assistant(*back), user(tool_result(call["id"]))]
            answer = await ask(served, thinking_request(history))
            if back == [thought, call] or not is_strict:
                assert answer.status == 200
            else:
                assert answer.error.startswith("messages.1.content.")
                assert CANNOT_BE_MODIFIED in answer.error

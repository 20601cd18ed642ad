from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from tests.conformance.cases import Api, Bill, control, marked, rule, text, user

SYSTEM = [marked(text(600))]
PREWARM: Mapping[str, Any] = {"max_tokens": 0, "system": SYSTEM}


@rule("prompt caching / pre-warming: max_tokens 0 writes and says nothing")
async def test_prewarming_writes_and_says_nothing(whole: Api) -> None:
    reply = await whole.send(**PREWARM)
    assert (reply["content"], reply["stop_reason"], reply["usage"]["output_tokens"]) == ([], "max_tokens", 0)
    assert Bill.of(reply["usage"]) == Bill(write_5m=600, uncached=1)


@rule("prompt caching / pre-warming: the next request reads what was warmed")
async def test_a_warmed_prefix_is_read(whole: Api) -> None:
    await whole.ask(**PREWARM)
    assert await whole.ask(system=SYSTEM, messages=[user(text(9))]) == Bill(read=600, uncached=9)


@rule("prompt caching / pre-warming: it refreshes what is already there")
async def test_prewarming_keeps_an_entry_alive(whole: Api) -> None:
    await whole.ask(**PREWARM)
    for _ in range(3):
        whole.advance(300)
        assert await whole.ask(**PREWARM) == Bill(read=600, uncached=1)


@rule("prompt caching / pre-warming: automatic caching warms the last block")
async def test_automatic_caching_can_be_warmed(whole: Api) -> None:
    request = {"messages": [user(text(700))], "cache_control": control()}
    assert await whole.ask(max_tokens=0, **request) == Bill(write_5m=700)
    assert await whole.ask(**request) == Bill(read=700)


@rule("prompt caching / pre-warming: refused with stream")
async def test_prewarming_is_refused_with_stream(whole: Api) -> None:
    streamed = attrs.evolve(whole, is_streamed=True)
    assert "max_tokens" in await streamed.refusal(**PREWARM)


@rule("prompt caching / pre-warming: refused with thinking enabled")
async def test_prewarming_is_refused_with_thinking(whole: Api) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1_024}
    assert "max_tokens" in await whole.refusal(**PREWARM, model="claude-haiku-4-5", thinking=thinking)


@rule("prompt caching / pre-warming: refused with output_config.format")
async def test_prewarming_is_refused_with_an_output_format(whole: Api) -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    config = {"format": {"type": "json_schema", "schema": schema}}
    assert "max_tokens" in await whole.refusal(**PREWARM, output_config=config)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "lookup"}])
@rule("prompt caching / pre-warming: refused with tool_choice any or tool")
async def test_prewarming_is_refused_with_a_forced_tool(whole: Api, choice: dict[str, str]) -> None:
    tools = [{"name": "lookup", "input_schema": {"type": "object"}}]
    assert "max_tokens" in await whole.refusal(**PREWARM, tools=tools, tool_choice=choice)

from collections.abc import Mapping
from typing import Any

import anthropic
import attrs
import pytest
import trio

from tests.conformance.cases import MODEL, Api, Bill, control, marked, open_api, rule, say, text, user

SYSTEM = [marked(text(600))]


async def _ask_into(bills: dict[str, Bill], api: Api, words: str) -> None:
    bills[words] = await api.ask(system=SYSTEM, messages=[user(say(words))])


@rule("prompt caching / concurrency: an entry is not readable before the first response begins")
async def test_a_request_that_comes_before_the_first_response_writes_too(holding: Api) -> None:
    bills: dict[str, Bill] = {}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ask_into, bills, holding, "hold")
        await holding.until_held()
        assert await holding.ask(system=SYSTEM) == Bill(write_5m=600, uncached=1)
        holding.go()
    assert bills["hold"] == Bill(write_5m=600, uncached=1)


@rule("prompt caching / concurrency: parallel identical requests all pay for the write")
async def test_parallel_requests_all_write(holding: Api) -> None:
    bills: dict[str, Bill] = {}
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(_ask_into, bills, holding, f"hold {number}")
        await holding.until_held()
        await _all_arrived(holding, 4)
        holding.go()
    assert set(bills.values()) == {Bill(write_5m=600, uncached=2)}


@rule("prompt caching / concurrency: requests sent after the first response has begun read")
async def test_requests_that_wait_for_the_first_one_read(api: Api) -> None:
    bills: dict[str, Bill] = {}
    await api.ask(system=SYSTEM)
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(_ask_into, bills, api, f"next {number}")
    assert set(bills.values()) == {Bill(read=600, uncached=2)}


STALLING = """
default:
  - {text: okay, when: {last_user_text: stall}, fault: {kind: stall, after: 1}}
  - {text: okay, times: always}
"""


@rule("prompt caching / concurrency: the entry is readable while the first response still streams")
async def test_an_entry_is_readable_as_soon_as_the_stream_has_begun() -> None:
    """The first stream never gets past its opening."""
    async with open_api(STALLING) as api, trio.open_nursery() as nursery:
        await nursery.start(_read_opening, api)
        assert await api.ask(system=SYSTEM) == Bill(read=600, uncached=1)
        nursery.cancel_scope.cancel()


@rule("prompt caching / concurrency: a request whose client leaves before the response leaves no entry")
async def test_a_request_given_up_before_its_response_leaves_no_entry(holding: Api) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ask_into, {}, holding, "hold")
        await holding.until_held()
        nursery.cancel_scope.cancel()
    assert await holding.ask(system=SYSTEM) == Bill(write_5m=600, uncached=1)


@rule("errors / prompt caching: a request that fails leaves no entry")
async def test_a_request_that_fails_leaves_no_entry() -> None:
    script = "default: [{text: okay, fault: overloaded}, {text: okay, times: always}]"
    async with open_api(script) as api:
        with pytest.raises(anthropic.InternalServerError):
            await api.ask(system=SYSTEM)
        assert await api.ask(system=SYSTEM) == Bill(write_5m=600, uncached=1)


@rule("errors / prompt caching: a request that is refused leaves no entry")
async def test_a_request_that_is_refused_leaves_no_entry(api: Api) -> None:
    await api.refusal(system=SYSTEM, tool_choice={"type": "any"})
    assert await api.ask(system=SYSTEM) == Bill(write_5m=600, uncached=1)


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


async def _read_opening(api: Api, *, task_status: trio.TaskStatus[None]) -> None:
    """Open a stream and hold it; started once its first event is here."""
    async with api.client.messages.stream(
        model=MODEL, max_tokens=16, system=SYSTEM, messages=[user(say("stall"))]
    ) as stream:
        async for event in stream:
            assert event.type == "message_start"
            task_status.started()


async def _all_arrived(api: Api, count: int) -> None:
    """Return when the server has begun to work on this many requests and waits."""
    with trio.fail_after(5):
        while api.served.server.log.next_number_seen < count:
            await trio.lowlevel.checkpoint()

from typing import Any

import pytest

from tests.conformance.cases import MODEL, Api, Bill, layered, marked, open_api, rule, text, text_block, user

REQUESTS = [
    layered(),
    layered(tools=[]),
    {"system": [marked(text(600), "1h")], "messages": [user(marked(text(20), "5m"), text(3))]},
    {"messages": [user(text(5))]},
]


async def events_of(api: Api, **changes: Any) -> list[dict[str, Any]]:
    """Return the raw events of a stream."""
    create: Any = api.client.messages.create
    stream = await create(**{"model": MODEL, "max_tokens": 16, "messages": [user(text(1))], **changes}, stream=True)
    return [event.to_dict() async for event in stream]


def of_kind(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Return the only event of this kind."""
    (found,) = [event for event in events if event["type"] == kind]
    return found


@pytest.mark.parametrize("request_", REQUESTS)
@rule("prompt caching / usage: total input is read plus created plus input_tokens")
async def test_the_input_adds_up(api: Api, request_: dict[str, Any]) -> None:
    counted = (await api.count(**request_))["input_tokens"]
    for _ in range(2):
        usage = (await api.send(**request_))["usage"]
        parts = ("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens")
        assert sum(usage[part] for part in parts) == counted


@pytest.mark.parametrize("request_", REQUESTS)
@rule("prompt caching / usage: cache_creation_input_tokens is the sum of cache_creation")
async def test_the_writes_add_up(api: Api, request_: dict[str, Any]) -> None:
    usage = (await api.send(**request_))["usage"]
    assert set(usage["cache_creation"]) == {"ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"}
    assert usage["cache_creation_input_tokens"] == sum(usage["cache_creation"].values())


@rule("prompt caching / usage: input_tokens is only what follows the last breakpoint")
async def test_input_tokens_follow_the_last_breakpoint(api: Api) -> None:
    request = {"messages": [user(marked(text(600)), text(41))]}
    for _ in range(2):
        assert (await api.send(**request))["usage"]["input_tokens"] == 41


@rule("messages / usage: iterations repeat the figures of the one pass")
async def test_iterations_repeat_the_figures(api: Api) -> None:
    for _ in range(2):
        usage = (await api.send(**REQUESTS[2]))["usage"]
        (iteration,) = usage["iterations"]
        assert iteration["type"] == "message"
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            assert iteration[name] == usage[name]
        assert iteration["cache_creation"] == usage["cache_creation"]


@rule("messages / usage: output, tier and region stand beside the input")
async def test_the_other_fields_are_there(api: Api) -> None:
    usage = (await api.send(**layered()))["usage"]
    assert (usage["output_tokens"], usage["output_tokens_details"]) == (1, {"thinking_tokens": 0})
    assert (usage["service_tier"], usage["inference_geo"]) == ("standard", "global")


@rule("messages / usage: thinking is part of the output")
async def test_thinking_tokens_are_part_of_the_output() -> None:
    async with open_api(f"default: [{{thinking: {'h' * 40}, text: okay}}]") as api:
        usage = (await api.send(thinking={"type": "adaptive"}))["usage"]
    assert (usage["output_tokens"], usage["output_tokens_details"]["thinking_tokens"]) == (11, 10)


@rule("streaming / usage: message_start has the cache figures already")
async def test_the_opening_of_a_stream_has_the_bill(whole: Api) -> None:
    opening = of_kind(await events_of(whole, **layered()), "message_start")["message"]["usage"]
    assert Bill.of(opening) == Bill(write_5m=678)
    opening = of_kind(await events_of(whole, **layered()), "message_start")["message"]["usage"]
    assert Bill.of(opening) == Bill(read=678)


@rule("streaming / usage: message_delta is cumulative and repeats the input")
async def test_the_end_of_a_stream_has_the_whole_usage() -> None:
    async with open_api(f"default: [{{text: {'w' * 40}, times: always}}]") as api:
        events = await events_of(api, **layered())
        first, last = of_kind(events, "message_start")["message"]["usage"], of_kind(events, "message_delta")["usage"]
    assert (first["output_tokens"], last["output_tokens"]) == (1, 10)
    for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
        assert first[name] == last[name]


@rule("streaming / usage: the same request is billed the same, streamed or whole")
async def test_a_stream_is_billed_like_a_whole_reply() -> None:
    usages = []
    for is_streamed in (False, True):
        async with open_api(is_streamed=is_streamed) as api:
            await api.ask(**layered())
            usages.append((await api.send(**layered(messages=[user(text_block("other"))])))["usage"])
    assert usages[0] == usages[1]


@rule("token counting / prompt caching: a count ignores the cache")
async def test_a_count_is_the_same_before_and_after(api: Api) -> None:
    before = await api.count(**layered())
    await api.ask(**layered())
    assert before == await api.count(**layered()) == {"input_tokens": 678}


@rule("token counting / prompt caching: a count writes nothing")
async def test_a_count_writes_nothing(api: Api) -> None:
    await api.count(**layered())
    assert await api.ask(**layered()) == Bill(write_5m=678)


@rule("token counting / prompt caching: a count refreshes nothing")
async def test_a_count_refreshes_nothing(api: Api) -> None:
    await api.ask(**layered())
    api.advance(200)
    await api.count(**layered())
    api.advance(200)
    assert (await api.ask(**layered())).read == 0


@rule("token counting / prompt caching: markers are checked all the same")
async def test_a_count_may_carry_markers(api: Api) -> None:
    assert await api.count(system=[marked(text(10), "1h")]) == {"input_tokens": 11}

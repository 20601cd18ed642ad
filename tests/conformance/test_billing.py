from decimal import Decimal
from typing import Any

import pytest

from coterie.agents.loop.model.catalog import load_models
from coterie.scenarios.api_server.api.rate_limiter import RateLimits
from tests.conformance.cases import (
    MODEL,
    Api,
    Bill,
    History,
    Refusal,
    Request,
    history,
    layered,
    marked,
    open_api,
    refusal,
    rule,
    rules,
    said,
    text,
    text_block,
    tool,
    user,
)

ORDER = (
    "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
    "Note that blocks are processed in the following order: `tools`, `system`, `messages`."
)


def ttls(tools: str | None, system: str | None, messages: str | None) -> Request:
    """Return `layered` with these lifetimes; an empty one means no breakpoint."""
    sections = (tool(600, "alpha"), tools), (text(70, "s"), system), (text(8, "m"), messages)
    blocks = [block if ttl == "" else marked(block, ttl) for block, ttl in sections]
    return {"tools": blocks[:1], "system": blocks[1:2], "messages": [user(blocks[2], text_block("now?"))]}


HISTORIES: dict[str, History] = {
    "prompt caching / mixed ttl: 1h before 5m is accepted and billed apart": history(
        ttls("1h", "5m", "5m"), Bill(write_1h=600, write_5m=78, uncached=1)
    ),
    "prompt caching / billing positions: A is 0 without a hit, B the last 1h marker, C the last marker": history(
        ttls("1h", "1h", "5m"), Bill(write_1h=670, write_5m=8, uncached=1)
    ),
    "prompt caching / billing positions: between A and B is written for 1h, between B and C for 5m": history(
        ttls("1h", "", ""), ttls("1h", "1h", "5m"), Bill(read=600, write_1h=70, write_5m=8, uncached=1)
    ),
    "prompt caching / billing positions: B is A when every 1h marker stands before the hit": history(
        ttls("1h", "5m", ""), ttls("1h", "", "5m"), Bill(read=670, write_5m=8, uncached=1)
    ),
    "prompt caching / billing positions: with a hit at C nothing is written": history(
        ttls("1h", "5m", "5m"), ttls("1h", "5m", "5m"), Bill(read=678, uncached=1)
    ),
    "prompt caching / billing positions: what follows C is plain input": history(
        (said(text(1_000), system=[marked(text(600))]), Bill(write_5m=600, uncached=1_000)),
        (said(text(1_000), system=[marked(text(600))]), Bill(read=600, uncached=1_000)),
    ),
    "prompt caching / minimum: the whole prefix counts, not the marked block": history(
        said(marked(text(12)), tools=[tool(300)], system=[text(200)]), Bill(write_5m=512)
    ),
    "prompt caching / minimum: a breakpoint too early leaves later ones in force": history(
        (said(marked(text(500)), system=[marked(text(100), "1h")]), Bill(write_5m=600)),
        (said(text(500, "y"), system=[marked(text(100))]), Bill(uncached=600)),
    ),
}


@rules(HISTORIES)
async def test_ttls_are_billed_apart(api: Api, row: History) -> None:
    await api.play(row)


REFUSALS: dict[str, Refusal] = {
    "prompt caching / mixed ttl: 1h in messages after 5m in system is refused with the block's path": refusal(
        ttls("1h", "5m", "1h"), f"messages.0.content.0.cache_control.ttl: {ORDER}"
    ),
    "prompt caching / mixed ttl: 1h in messages after the default in system is refused": refusal(
        ttls("1h", None, "1h"), f"messages.0.content.0.cache_control.ttl: {ORDER}"
    ),
    "prompt caching / mixed ttl: 1h in system after 5m in tools is refused, whatever the order of parameters": refusal(
        dict(reversed(ttls("5m", "1h", "").items())), f"system.0.cache_control.ttl: {ORDER}"
    ),
    "prompt caching / mixed ttl: the path names the offending block among its neighbours": refusal(
        said(marked(text(600)), text(1), text(1), text(1), marked(text(1), "1h")),
        f"messages.0.content.4.cache_control.ttl: {ORDER}",
    ),
}


@rules(REFUSALS)
async def test_longer_ttl_behind_a_shorter_one_is_refused(api: Api, row: Refusal) -> None:
    await api.check_refusal(row)


PRICES = {
    "claude-fable-5-2": ("8", "40", "10", "16", "0.20"),
    "claude-fable-5-1": ("10", "50", "12.50", "20", "0.25"),
    "claude-mythos-5-1": ("10", "50", "12.50", "20", "0.25"),
    "claude-opus-5-5": ("4", "20", "5", "8", "0.20"),
    "claude-sonnet-5-5": ("2", "10", "2.50", "4", "0.10"),
    "claude-haiku-5-5": ("0.10", "0.50", "0.125", "0.20", "0.01"),
    "claude-fable-5": ("10", "50", "12.50", "20", "1.00"),
    "claude-mythos-5": ("10", "50", "12.50", "20", "1.00"),
    "claude-opus-5": ("5", "25", "6.25", "10", "0.50"),
    "claude-opus-4-8": ("5", "25", "6.25", "10", "0.50"),
    "claude-opus-4-7": ("5", "25", "6.25", "10", "0.50"),
    "claude-opus-4-6": ("5", "25", "6.25", "10", "0.50"),
    "claude-opus-4-5": ("5", "25", "6.25", "10", "0.50"),
    "claude-sonnet-5": ("2", "10", "2.50", "4", "0.20"),
    "claude-sonnet-4-6": ("3", "15", "3.75", "6", "0.30"),
    "claude-sonnet-4-5": ("3", "15", "3.75", "6", "0.30"),
    "claude-haiku-4-5": ("1", "5", "1.25", "2", "0.10"),
}
"""Dollars per million tokens: input, output, 5m write, 1h write, read."""


async def _micros(api: Api, **request: Any) -> Decimal:
    """Return the cost of a request in millionths of a dollar."""
    await api.ask(**request)
    return Decimal(api.served.requests[-1]["cost_usd"]) * 1_000_000


@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")  # the SDK warns of a deprecated model
@pytest.mark.parametrize("model", PRICES)
@rule("pricing / prompt caching: writes and reads have each model's own price")
async def test_writes_and_reads_are_billed_at_the_models_prices(api: Api, model: str) -> None:
    plain, output, write_5m, write_1h, read = map(Decimal, PRICES[model])
    request = {"model": model, "system": [marked(text(5_000), "1h")], "messages": [user(marked(text(7)), text(3))]}
    assert await _micros(api, **request) == 5_000 * write_1h + 7 * write_5m + 3 * plain + output
    assert await _micros(api, **request) == 5_007 * read + 3 * plain + output


@pytest.mark.parametrize(("tokens", "write", "read"), [(100_000, "0.125", "0.01"), (100_001, "0.625", "0.05")])
@rule("pricing / long prompts: Haiku 5.5 has a second tier above 100,000 tokens, cached or not")
async def test_the_whole_prompt_picks_the_tier(api: Api, tokens: int, write: str, read: str) -> None:
    output = Decimal(write) * 4
    request = {"model": "claude-haiku-5-5", "messages": [user(marked(text(tokens)))]}
    assert await _micros(api, **request) == tokens * Decimal(write) + output
    assert await _micros(api, **request) == tokens * Decimal(read) + output


@rule("rate limits / input tokens: cache reads do not count, writes do")
async def test_cache_reads_do_not_use_up_the_rate_limit() -> None:
    async with open_api(rates=RateLimits(input_tokens=10_000)) as api:
        left = []
        for _ in range(3):
            create: Any = api.client.messages.with_raw_response.create
            answer = await create(model=MODEL, max_tokens=16, messages=[user(marked(text(6_000)))])
            left.append(answer.headers["anthropic-ratelimit-input-tokens-remaining"])
    assert left == ["4000", "4000", "4000"]


MIXED = said(marked(text(20), "5m"), text(41), system=[marked(text(600), "1h")])


async def events_of(api: Api, **changes: Any) -> list[dict[str, Any]]:
    """Return the raw events of a stream."""
    create: Any = api.client.messages.create
    stream = await create(**{"model": MODEL, "max_tokens": 16, "messages": [user(text(1))], **changes}, stream=True)
    return [event.to_dict() async for event in stream]


def of_kind(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [event for event in events if event["type"] == kind]
    return found


@pytest.mark.parametrize("request_", [layered(), layered(tools=[]), MIXED, said(text(5))])
@rule("prompt caching / usage: total input is read plus created plus input_tokens, and created the sum of both ttls")
async def test_the_input_and_the_writes_add_up(api: Api, request_: Request) -> None:
    counted = (await api.count(**request_))["input_tokens"]
    for _ in range(2):
        usage = (await api.send(**request_))["usage"]
        parts = ("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens")
        assert sum(usage[part] for part in parts) == counted
        assert set(usage["cache_creation"]) == {"ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"}
        assert usage["cache_creation_input_tokens"] == sum(usage["cache_creation"].values())


@rule("messages / usage: iterations repeat the figures of the one pass, tier and region stand beside them")
async def test_iterations_repeat_the_figures(api: Api) -> None:
    for _ in range(2):
        usage = (await api.send(**MIXED))["usage"]
        assert usage["input_tokens"] == 41, "only what follows the last breakpoint"
        (iteration,) = usage["iterations"]
        assert iteration["type"] == "message"
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        for name in (*names, "cache_creation"):
            assert iteration[name] == usage[name]
        assert (usage["output_tokens"], usage["output_tokens_details"]) == (1, {"thinking_tokens": 0})
        assert (usage["service_tier"], usage["inference_geo"]) == ("standard", "global")


@rule("messages / usage: thinking is part of the output")
async def test_thinking_tokens_are_part_of_the_output() -> None:
    async with open_api(f"default: [{{thinking: {'h' * 40}, text: okay}}]") as api:
        usage = (await api.send(thinking={"type": "adaptive"}))["usage"]
    assert (usage["output_tokens"], usage["output_tokens_details"]["thinking_tokens"]) == (11, 10)


@rule("streaming / usage: message_start has the cache figures, message_delta is cumulative and repeats the input")
async def test_both_ends_of_a_stream_have_the_bill() -> None:
    async with open_api(f"default: [{{text: {'w' * 40}, times: always}}]") as api:
        for bill in (Bill(write_5m=678), Bill(read=678)):
            events = await events_of(api, **layered())
            first = of_kind(events, "message_start")["message"]["usage"]
            last = of_kind(events, "message_delta")["usage"]
            assert Bill.of(first) == bill
            assert (first["output_tokens"], last["output_tokens"]) == (1, 10)
            for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
                assert first[name] == last[name]


@rule("streaming / usage: the same request is billed the same, streamed or whole")
async def test_a_stream_is_billed_like_a_whole_reply() -> None:
    usages = []
    for is_streamed in (False, True):
        async with open_api(is_streamed=is_streamed) as api:
            await api.ask(**layered())
            usages.append((await api.send(**layered(**said(text_block("other")))))["usage"])
    assert usages[0] == usages[1]


@rule("token counting / prompt caching: a count checks markers, and neither writes, reads nor refreshes")
async def test_a_count_ignores_the_cache(api: Api) -> None:
    assert await api.count(system=[marked(text(10), "1h")]) == {"input_tokens": 11}
    assert await api.count(**layered()) == {"input_tokens": 678}
    await api.play(history(layered(), Bill(write_5m=678), 200.0))
    assert await api.count(**layered()) == {"input_tokens": 678}
    await api.play(history(200.0, layered(), 0))


MINIMUMS = {
    **dict.fromkeys(["claude-fable-5", "claude-fable-5-1", "claude-mythos-5", "claude-mythos-5-1"], 512),
    **dict.fromkeys(["claude-opus-5", "claude-opus-5-5", "claude-sonnet-5-5"], 512),
    **dict.fromkeys(["claude-opus-4-8", "claude-sonnet-5", "claude-sonnet-4-6", "claude-sonnet-4-5"], 1_024),
    "claude-opus-4-7": 2_048,
    **dict.fromkeys(["claude-opus-4-6", "claude-opus-4-5", "claude-haiku-4-5"], 4_096),
    # Not documented; assumed to be like similar models.
    **dict.fromkeys(["claude-fable-5-2", "claude-mythos-5-2", "claude-haiku-5-5"], 512),
}


@rule("models / overview: every model of the table has a cache minimum")
async def test_every_model_of_the_table_is_covered() -> None:
    assert set(load_models().models) == set(MINIMUMS)


@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")  # the SDK warns of a deprecated model
@pytest.mark.parametrize("model", MINIMUMS)
@rule("prompt caching / minimum: a prefix of just the minimum is cached, one token less is silently not")
async def test_a_prefix_of_the_minimum_is_cached(api: Api, model: str) -> None:
    least = MINIMUMS[model]
    short, enough = (said(marked(text(tokens)), model=model) for tokens in (least - 1, least))
    uncached = Bill(uncached=least - 1)
    await api.play(history(short, uncached, short, uncached, enough, Bill(write_5m=least), enough, Bill(read=least)))

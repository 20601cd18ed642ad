from decimal import Decimal
from typing import Any

import pytest

from coterie.scenarios.api_server.api.rate_limiter import RateLimits
from tests.conformance.cases import MODEL, Api, Bill, layered, marked, open_api, rule, text, text_block, tool, user

ORDER = (
    "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
    "Note that blocks are processed in the following order: `tools`, `system`, `messages`."
)


def ttls(tools: str | None, system: str | None, messages: str | None) -> dict[str, Any]:
    """Return `layered` with these lifetimes; an empty one means no breakpoint."""
    sections = (tool(600, "alpha"), tools), (text(70, "s"), system), (text(8, "m"), messages)
    blocks = [block if ttl == "" else marked(block, ttl) for block, ttl in sections]
    return {"tools": blocks[:1], "system": blocks[1:2], "messages": [user(blocks[2], text_block("now?"))]}


@rule("prompt caching / mixed ttl: 1h before 5m is accepted and billed apart")
async def test_a_longer_ttl_may_stand_before_a_shorter_one(api: Api) -> None:
    assert await api.ask(**ttls("1h", "5m", "5m")) == Bill(write_1h=600, write_5m=78, uncached=1)


@pytest.mark.parametrize(("system", "messages"), [("5m", "1h"), (None, "1h")])
@rule("prompt caching / mixed ttl: 1h after 5m in messages is refused with the block's path")
async def test_an_hour_in_messages_after_five_minutes_is_refused(api: Api, system: str | None, messages: str) -> None:
    assert await api.refusal(**ttls("1h", system, messages)) == f"messages.0.content.0.cache_control.ttl: {ORDER}"


@rule("prompt caching / mixed ttl: 1h in system after 5m in tools is refused")
async def test_an_hour_in_system_after_five_minutes_is_refused(api: Api) -> None:
    """The order is that of the prompt, not that of the parameters."""
    request = dict(reversed(ttls("5m", "1h", "").items()))
    assert await api.refusal(**request) == f"system.0.cache_control.ttl: {ORDER}"


@rule("prompt caching / mixed ttl: the path names the offending block among its neighbours")
async def test_the_path_names_the_block_inside_its_message(api: Api) -> None:
    blocks = [marked(text(600)), text(1), text(1), text(1), marked(text(1), "1h")]
    assert await api.refusal(messages=[user(*blocks)]) == f"messages.0.content.4.cache_control.ttl: {ORDER}"


@rule("prompt caching / billing positions: A is 0 without a hit, B the last 1h marker, C the last marker")
async def test_without_a_hit_everything_marked_is_written(api: Api) -> None:
    assert await api.ask(**ttls("1h", "1h", "5m")) == Bill(write_1h=670, write_5m=8, uncached=1)


@rule("prompt caching / billing positions: between A and B is written for 1h, between B and C for 5m")
async def test_what_follows_the_hit_is_split_at_the_last_hour_marker(api: Api) -> None:
    await api.ask(**ttls("1h", "", ""))
    assert await api.ask(**ttls("1h", "1h", "5m")) == Bill(read=600, write_1h=70, write_5m=8, uncached=1)


@rule("prompt caching / billing positions: B is A when every 1h marker stands before the hit")
async def test_an_hour_marker_before_the_hit_costs_nothing(api: Api) -> None:
    await api.ask(**ttls("1h", "5m", ""))
    assert await api.ask(**ttls("1h", "", "5m")) == Bill(read=670, write_5m=8, uncached=1)


@rule("prompt caching / billing positions: with a hit at C nothing is written")
async def test_a_hit_at_the_last_marker_writes_nothing(api: Api) -> None:
    await api.ask(**ttls("1h", "5m", "5m"))
    assert await api.ask(**ttls("1h", "5m", "5m")) == Bill(read=678, uncached=1)


@rule("prompt caching / billing positions: what follows C is plain input")
async def test_what_follows_the_last_marker_is_plain_input(api: Api) -> None:
    request = {"system": [marked(text(600))], "messages": [user(text(1_000))]}
    for bill in (Bill(write_5m=600, uncached=1_000), Bill(read=600, uncached=1_000)):
        assert await api.ask(**request) == bill


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


@rule("prompt caching / billing positions: read, written and plain input add up to the prompt")
async def test_the_parts_of_a_bill_add_up_to_the_prompt(api: Api) -> None:
    for request in (ttls("1h", "5m", ""), ttls("1h", "", "5m"), ttls("", "", ""), layered()):
        counted = {name: request[name] for name in ("tools", "system", "messages")}
        assert (await api.ask(**request)).total == (await api.count(**counted))["input_tokens"]

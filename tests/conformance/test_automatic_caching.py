from typing import Any

import pytest

from tests.conformance.cases import (
    Api,
    Bill,
    assistant,
    control,
    layered,
    marked,
    open_api,
    rule,
    text,
    text_block,
    user,
)

BIG = text(600)


@rule("automatic caching / placement: a top-level cache_control marks the last cacheable block")
async def test_the_last_block_is_marked(api: Api) -> None:
    request = {"system": [BIG], "messages": [user(text(1), text(2))], "cache_control": control()}
    assert await api.ask(**request) == Bill(write_5m=603)
    assert await api.ask(**request) == Bill(read=603)


@rule("automatic caching / conversations: the breakpoint moves forward with each turn")
async def test_the_breakpoint_moves_with_the_conversation(api: Api) -> None:
    await api.ask(messages=[user(BIG)], cache_control=control())
    grown = [user(BIG), assistant(text(3)), user(text(4))]
    assert await api.ask(messages=grown, cache_control=control()) == Bill(read=600, write_5m=7)


@rule("automatic caching / ttl: the top-level ttl is the breakpoint's")
async def test_the_ttl_is_taken_from_the_top(api: Api) -> None:
    assert await api.ask(messages=[user(BIG)], cache_control=control("1h")) == Bill(write_1h=600)


@rule("automatic caching / combined: explicit breakpoints keep their places")
async def test_explicit_breakpoints_stay_beside_it(api: Api) -> None:
    await api.ask(system=[marked(BIG)], messages=[user(text(1))], cache_control=control())
    other = {"system": [marked(BIG)], "messages": [user(text(2))]}
    assert await api.ask(**other) == Bill(read=600, uncached=2)


@pytest.mark.parametrize("ttl", [None, "5m"])
@rule("automatic caching / edge cases: a last block marked with the same ttl makes it a no-op")
async def test_nothing_is_added_to_a_block_that_is_marked_alike(api: Api, ttl: str | None) -> None:
    request = {"messages": [user(marked(BIG, ttl))]}
    assert await api.ask(**request, cache_control=control()) == Bill(write_5m=600)
    assert await api.ask(**request) == Bill(read=600)


@pytest.mark.parametrize(("explicit", "top"), [("1h", None), ("1h", "5m"), (None, "1h"), ("5m", "1h")])
@rule("automatic caching / edge cases: a last block marked with another ttl is refused")
async def test_a_last_block_with_another_ttl_is_refused(api: Api, explicit: str | None, top: str | None) -> None:
    refusal = await api.refusal(messages=[user(marked(BIG, explicit))], cache_control=control(top))
    assert refusal.startswith("cache_control.ttl: ")


@rule("automatic caching / edge cases: four explicit breakpoints leave no slot for it")
async def test_it_is_the_fifth_of_four_breakpoints(api: Api) -> None:
    three = layered(messages=[user(marked(text(1)), text(1))])
    assert (await api.ask(**three, cache_control=control())).uncached == 0
    four = layered(messages=[user(marked(text(1)), marked(text(1)), text(1))])
    refusal = await api.refusal(**four, cache_control=control())
    assert refusal == "A maximum of 4 blocks with cache_control may be provided. Found 5."


@rule("automatic caching / edge cases: from an ineligible last block it walks back to the nearest eligible one")
async def test_it_walks_back_over_what_cannot_be_marked(api: Api) -> None:
    """An empty prefill is the last block."""
    model, asked = "claude-haiku-4-5", text(5_000)
    bill = await api.ask(model=model, messages=[user(asked), assistant(text_block(""))], cache_control=control())
    assert bill.write_5m == 5_000
    assert await api.ask(model=model, messages=[user(marked(asked))]) == Bill(read=5_000)


@rule("automatic caching / edge cases: without an eligible block nothing is cached and nothing refused")
async def test_nothing_eligible_is_silently_not_cached() -> None:
    """Uses the lenient server: strict mode rejects a request of thinking only."""
    alone: list[dict[str, Any]] = [user({"type": "thinking", "thinking": "h" * 2_400, "signature": "s"})]
    async with open_api(is_strict=False) as api:
        assert await api.ask(messages=alone, cache_control=control()) == Bill(uncached=600)


@rule("automatic caching / mixed ttl: an automatic hour behind explicit five minutes is refused")
async def test_it_keeps_to_the_order_of_ttls(api: Api) -> None:
    refusal = await api.refusal(system=[marked(BIG)], cache_control=control("1h"))
    assert "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block" in refusal


@rule("automatic caching / minimum: a short prompt is not cached")
async def test_a_short_prompt_is_not_cached(api: Api) -> None:
    assert await api.ask(messages=[user(text(511))], cache_control=control()) == Bill(uncached=511)


def _searched(*behind: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a conversation in which the server's own tool has found a result."""
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    return [user(text(1)), assistant(use, found), user(*behind)]


@rule("tool use with prompt caching / server tools: a marked request gets a 5m breakpoint on their results")
async def test_results_of_server_tools_are_cached_with_any_breakpoint(api: Api) -> None:
    first = await api.ask(system=[marked(BIG, "1h")], messages=_searched(text(5)))
    assert (first.write_1h, first.uncached) == (600, 5)
    assert first.write_5m > 0
    again = await api.ask(system=[marked(BIG, "1h")], messages=_searched(text(7)))
    assert again == Bill(read=600 + first.write_5m, uncached=7)


@rule("tool use with prompt caching / server tools: nothing is cached for a request without a breakpoint")
async def test_results_of_server_tools_are_not_cached_by_themselves(api: Api) -> None:
    assert (await api.ask(system=[BIG], messages=_searched(text(5)))).cached == 0

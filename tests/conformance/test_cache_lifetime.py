from typing import Any

import anthropic
import pytest
import trio

from tests.conformance.cases import (
    MODEL,
    Api,
    Bill,
    History,
    Request,
    control,
    history,
    marked,
    open_api,
    rule,
    rules,
    said,
    text,
    text_block,
)

SYSTEM = text(600)
TINY = 0.001


def cached(ttl: str | None = None, words: str = "hello") -> Request:
    """Return a request that caches its system prompt."""
    return said(text_block(words), system=[marked(SYSTEM, ttl)])


def _life(ttl: str | None, life: float) -> History:
    """Return a history in which an entry expires, is written again and read as long as it lives."""
    written = Bill(write_1h=600, uncached=2) if ttl == "1h" else Bill(write_5m=600, uncached=2)
    hit, gone = history(life, cached(ttl), 600), history(life + TINY, cached(ttl), written)
    return [cached(ttl), written, *gone, *hit * 5, *gone]


BRANCH = said(marked(text(10)), system=[marked(SYSTEM)])
LONGER = said(marked(text(10), "5m"), system=[marked(SYSTEM, "1h")])
PREWARM = {"max_tokens": 0, "system": [marked(SYSTEM)]}

HISTORIES: dict[str, History] = {
    "prompt caching / ttl: an entry lives five minutes by default, and each hit refreshes it": _life(None, 300.0),
    "prompt caching / ttl: an entry for 5m lives five minutes, and each hit refreshes it": _life("5m", 300.0),
    "prompt caching / ttl: an entry for 1h lives an hour, and each hit refreshes it": _life("1h", 3_600.0),
    "prompt caching / ttl: an entry that the lookback finds is refreshed too": history(
        said(marked(SYSTEM)), 200.0, said(SYSTEM, marked(text(10))), 600, 200.0, said(marked(SYSTEM)), Bill(read=600)
    ),
    "prompt caching / ttl: a longer prefix that was not hit is not refreshed": history(
        BRANCH, 200.0, cached(), 600, 200.0, BRANCH, Bill(read=600, write_5m=10)
    ),
    "prompt caching / ttl: an hour's prefix outlives the five minutes behind it": history(
        LONGER, 1_000.0, LONGER, Bill(read=600, write_5m=10)
    ),
}


@rules(HISTORIES)
async def test_entry_lives_its_time_after_each_hit(api: Api, row: History) -> None:
    await api.play(row)


PREWARMING: dict[str, History] = {
    "prompt caching / pre-warming: the next request reads what was warmed": history(
        PREWARM, Bill(write_5m=600, uncached=1), said(text(9), system=[marked(SYSTEM)]), Bill(read=600, uncached=9)
    ),
    "prompt caching / pre-warming: it refreshes what is already there": history(
        PREWARM, 300.0, PREWARM, Bill(read=600, uncached=1), 300.0, PREWARM, Bill(read=600, uncached=1)
    ),
    "prompt caching / pre-warming: automatic caching warms the last block": history(
        said(text(700), max_tokens=0, cache_control=control()),
        Bill(write_5m=700),
        said(text(700), cache_control=control()),
        Bill(read=700),
    ),
}


@rules(PREWARMING)
async def test_prewarmed_prefix_is_read(whole: Api, row: History) -> None:
    await whole.play(row)


@rule("prompt caching / pre-warming: max_tokens 0 says nothing")
async def test_prewarming_says_nothing(whole: Api) -> None:
    reply = await whole.send(**PREWARM)
    assert (reply["content"], reply["stop_reason"], reply["usage"]["output_tokens"]) == ([], "max_tokens", 0)


async def _write_slowly(api: Api) -> None:
    """Send a request whose reply begins 200 seconds later."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: api.ask(**cached(words="hold")))
        await api.until_held()
        api.advance(200)
        api.go()


@pytest.mark.parametrize(("late", "read"), [(0.0, 600), (TINY, 0)])
@rule("prompt caching / ttl: the time counts from the start of the request that writes")
async def test_the_life_of_a_write_counts_from_the_start_of_its_request(holding: Api, late: float, read: int) -> None:
    await _write_slowly(holding)
    await holding.play(history(100 + late, cached(), read))


@pytest.mark.parametrize(("late", "read"), [(0.0, 600), (TINY, 0)])
@rule("prompt caching / ttl: a refresh counts from the start of the request that reads")
async def test_the_refresh_counts_from_the_start_of_the_reading_request(holding: Api, late: float, read: int) -> None:
    await holding.play(history(cached(), 250.0))
    await _write_slowly(holding)
    await holding.play(history(100 + late, cached(), read))


WRITTEN = Bill(write_5m=600, uncached=2)


async def _ask_into(bills: dict[str, Bill], api: Api, words: str) -> None:
    bills[words] = await api.ask(**cached(words=words))


@rule("prompt caching / concurrency: an entry is not readable before the first response begins")
async def test_a_request_that_comes_before_the_first_response_writes_too(holding: Api) -> None:
    bills: dict[str, Bill] = {}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ask_into, bills, holding, "hold")
        await holding.until_held()
        await holding.play(history(cached(), WRITTEN))
        holding.go()
    assert bills["hold"] == Bill(write_5m=600, uncached=1)


PARALLEL = """
default:
  - {text: okay, until: go-1, when: {last_user_text: ask-1}}
  - {text: okay, until: go-2, when: {last_user_text: ask-2}}
  - {text: okay, until: go-3, when: {last_user_text: ask-3}}
  - {text: okay, times: always}
"""


@rule("prompt caching / concurrency: parallel identical requests all pay for the write, later ones read")
async def test_parallel_requests_all_write_and_later_ones_read() -> None:
    bills: dict[str, Bill] = {}
    async with open_api(PARALLEL) as api:
        async with trio.open_nursery() as nursery:
            for number in (1, 2, 3):
                nursery.start_soon(_ask_into, bills, api, f"ask-{number}")
            await api.until_held("go-1", "go-2", "go-3")
            api.go("go-1", "go-2", "go-3")
        assert list(bills.values()) == [WRITTEN] * 3
        async with trio.open_nursery() as nursery:
            for number in (1, 2, 3):
                nursery.start_soon(_ask_into, bills, api, f"ask-{number}")
        assert list(bills.values()) == [Bill(read=600, uncached=2)] * 3


STALLING = """
default:
  - {text: okay, when: {last_user_text: stall}, fault: {kind: stall, after: 1}}
  - {text: okay, times: always}
"""


async def _read_opening(api: Api, *, task_status: trio.TaskStatus[None]) -> None:
    """Open a stream and hold it; started after its first event."""
    open_stream: Any = api.client.messages.stream
    async with open_stream(model=MODEL, max_tokens=16, **cached(words="stall")) as stream:
        async for event in stream:
            assert event.type == "message_start"
            task_status.started()


@rule("prompt caching / concurrency: the entry is readable while the first response still streams")
async def test_an_entry_is_readable_as_soon_as_the_stream_has_begun() -> None:
    """The first stream never gets past its first event."""
    async with open_api(STALLING) as api, trio.open_nursery() as nursery:
        await nursery.start(_read_opening, api)
        await api.play(history(cached(), Bill(read=600, uncached=2)))
        nursery.cancel_scope.cancel()


@rule("prompt caching / concurrency: a request whose client leaves before the response leaves no entry")
async def test_a_request_given_up_before_its_response_leaves_no_entry(holding: Api) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ask_into, {}, holding, "hold")
        await holding.until_held()
        nursery.cancel_scope.cancel()
    await holding.play(history(cached(), WRITTEN))


@rule("errors / prompt caching: a request that fails or is refused leaves no entry")
async def test_a_request_that_fails_or_is_refused_leaves_no_entry() -> None:
    async with open_api("default: [{text: okay, fault: overloaded}, {text: okay, times: always}]") as api:
        with pytest.raises(anthropic.InternalServerError):
            await api.ask(**cached())
        await api.refusal(**cached(), tool_choice={"type": "any"})
        await api.play(history(cached(), WRITTEN))

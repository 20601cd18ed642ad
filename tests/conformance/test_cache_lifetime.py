from typing import Any

import pytest
import trio

from tests.conformance.cases import Api, Bill, marked, rule, text, text_block, user

SYSTEM = text(600)
TINY = 0.001

LIVES = [(None, 300.0), ("5m", 300.0), ("1h", 3_600.0)]


def cached(ttl: str | None, words: str = "hello") -> dict[str, Any]:
    """Return a request that caches its system prompt."""
    return {"system": [marked(SYSTEM, ttl)], "messages": [user(text_block(words))]}


@pytest.mark.parametrize(("ttl", "life"), LIVES)
@rule("prompt caching / ttl: an entry lives for five minutes by default, or an hour")
async def test_an_entry_lives_its_whole_time(api: Api, ttl: str | None, life: float) -> None:
    await api.ask(**cached(ttl))
    api.advance(life)
    assert (await api.ask(**cached(ttl))).read == 600


@pytest.mark.parametrize(("ttl", "life"), LIVES)
@rule("prompt caching / ttl: after its time an entry is gone and has to be written again")
async def test_an_entry_is_gone_after_its_time(api: Api, ttl: str | None, life: float) -> None:
    first = await api.ask(**cached(ttl))
    api.advance(life + TINY)
    assert await api.ask(**cached(ttl)) == first


@pytest.mark.parametrize(("ttl", "life"), LIVES)
@rule("prompt caching / ttl: every hit refreshes the entry at no cost")
async def test_a_hit_begins_the_life_of_an_entry_anew(api: Api, ttl: str | None, life: float) -> None:
    await api.ask(**cached(ttl))
    for _ in range(5):
        api.advance(life)
        bill = await api.ask(**cached(ttl))
        assert (bill.read, bill.written) == (600, 0)
    api.advance(life + TINY)
    assert (await api.ask(**cached(ttl))).read == 0


@rule("prompt caching / ttl: an entry that the lookback finds is refreshed too")
async def test_a_hit_behind_the_breakpoint_refreshes_its_entry(api: Api) -> None:
    await api.ask(messages=[user(marked(SYSTEM))])
    api.advance(200)
    assert (await api.ask(messages=[user(SYSTEM, marked(text(10)))])).read == 600
    api.advance(200)
    assert await api.ask(messages=[user(marked(SYSTEM))]) == Bill(read=600)


@rule("prompt caching / ttl: a longer prefix that was not hit is not refreshed")
async def test_only_the_entry_that_was_hit_is_refreshed(api: Api) -> None:
    """The conversation of another branch ages while the shared system prompt is read."""
    branch = {"system": [marked(SYSTEM)], "messages": [user(marked(text(10)))]}
    await api.ask(**branch)
    api.advance(200)
    assert (await api.ask(**cached(None))).read == 600
    api.advance(200)
    assert await api.ask(**branch) == Bill(read=600, write_5m=10)


@rule("prompt caching / ttl: an hour's prefix outlives the five minutes behind it")
async def test_the_longer_prefix_survives_the_shorter_one(api: Api) -> None:
    request = {"system": [marked(SYSTEM, "1h")], "messages": [user(marked(text(10), "5m"))]}
    await api.ask(**request)
    api.advance(1_000)
    assert await api.ask(**request) == Bill(read=600, write_5m=10)


@pytest.mark.parametrize(("late", "read"), [(0.0, 600), (TINY, 0)])
@rule("prompt caching / ttl: the time counts from the start of the request that writes")
async def test_the_life_of_a_write_counts_from_the_start_of_its_request(holding: Api, late: float, read: int) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ask, holding, "hold")
        await holding.until_held()
        holding.advance(200)
        holding.go()
    holding.advance(100 + late)
    assert (await holding.ask(**cached(None))).read == read


@pytest.mark.parametrize(("late", "read"), [(0.0, 600), (TINY, 0)])
@rule("prompt caching / ttl: a refresh counts from the start of the request that reads")
async def test_the_refresh_counts_from_the_start_of_the_reading_request(holding: Api, late: float, read: int) -> None:
    await holding.ask(**cached(None))
    holding.advance(250)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ask, holding, "hold")
        await holding.until_held()
        holding.advance(200)
        holding.go()
    holding.advance(100 + late)
    assert (await holding.ask(**cached(None))).read == read


@rule("prompt caching / ttl: an hour needs no beta header")
async def test_an_hour_needs_no_beta_header(api: Api) -> None:
    assert await api.ask(**cached("1h")) == Bill(write_1h=600, uncached=2)


async def _ask(api: Api, words: str) -> None:
    await api.ask(**cached(None, words))

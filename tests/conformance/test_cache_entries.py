from typing import Any

import anthropic
import pytest
import trio

from tests.conformance.cases import (
    MODEL,
    Api,
    Bill,
    Block,
    History,
    Message,
    Request,
    assistant,
    control,
    history,
    marked,
    open_api,
    rule,
    rules,
    said,
    text,
    text_block,
    tool_result,
    tool_use,
    user,
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
        (said(text(700), max_tokens=0, cache_control=control()), Bill(write_5m=700)),
        (said(text(700), cache_control=control()), Bill(read=700)),
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


FIRST = 600
"""Tokens of the first block of `numbered`; the others have one each."""
FIRST_WRITTEN = said(marked(SYSTEM))


def words(count: int) -> list[Block]:
    """Return different texts of one token each, the last one marked."""
    *others, last = (text_block(f"{number:04}") for number in range(count))
    return [*others, marked(last)]


def numbered(count: int, *breakpoints: int) -> Request:
    """Return a request of *count* blocks, counted from 1 as in the documentation, with these marked."""
    blocks: list[Block] = [SYSTEM, *(text_block(f"{number:04}") for number in range(2, count + 1))]
    return said(*(marked(block) if at in breakpoints else block for at, block in enumerate(blocks, 1)))


def up_to(block: int) -> int:
    """Return the tokens of `numbered` up to this block."""
    return FIRST + block - 1


def looped(count: int, *behind: Block, marks: str = "") -> Request:
    """Return a round of *count* parallel calls; the last call or result is marked if *marks* says so."""
    calls = [tool_use(f"toolu_{number}") for number in range(count)]
    results = [tool_result(f"toolu_{number}") for number in range(count)]
    if marks:
        marked_blocks = calls if marks == "calls" else results
        marked_blocks[-1] = marked(marked_blocks[-1])
    return {"messages": [user(SYSTEM), assistant(*calls), user(*results, *behind)]}


def _spoken(count: int) -> Request:
    """Return calls with text between them, the last one marked."""
    spoken = [block for number in range(count) for block in (text_block(f"{number:04}"), tool_use(f"toolu_{number}"))]
    results = [tool_result(f"toolu_{number}") for number in range(count)]
    return {"messages": [user(SYSTEM), assistant(*spoken[:-1], marked(spoken[-1])), user(*results)]}


LOOKBACK: dict[str, History] = {
    "prompt caching / lookback: entry at block 15, breakpoint at 35: checked are 35 to 16, a miss": history(
        numbered(15, 15), numbered(35, 35), Bill(write_5m=up_to(35))
    ),
    "prompt caching / lookback: entry at block 15, breakpoint at 34: the twentieth position is a hit": history(
        numbered(15, 15), numbered(34, 34), Bill(read=up_to(15), write_5m=19)
    ),
    **{
        f"prompt caching / lookback: the breakpoint is the first of 20 positions, {steps} behind an entry": history(
            numbered(3, 3), numbered(3 + steps, 3 + steps), Bill(read=up_to(3), write_5m=steps)
        )
        for steps in (0, 1, 10, 18, 19)
    },
    "prompt caching / lookback: it finds earlier writes, not content that stayed the same": history(
        said(SYSTEM, marked(text_block("monday"))), said(SYSTEM, marked(text_block("friday"))), 0
    ),
    "prompt caching / lookback: a second explicit breakpoint takes the search up again": history(
        numbered(15, 15), numbered(50, 34, 50), Bill(read=up_to(15), write_5m=up_to(50) - up_to(15))
    ),
    "prompt caching / lookback: it goes on from the messages into system and tools": history(
        {"system": [marked(SYSTEM)]}, said(*words(19), system=[SYSTEM]), Bill(read=FIRST, write_5m=19)
    ),
    "prompt caching / lookback: one block more than reaches into system is a miss": history(
        {"system": [marked(SYSTEM)]}, said(*words(20), system=[SYSTEM]), 0
    ),
    "prompt caching / lookback: consecutive tool_use blocks are one position": history(
        FIRST_WRITTEN, looped(30, marks="calls"), FIRST
    ),
    "prompt caching / lookback: consecutive tool_result blocks are one position": history(
        (looped(30, marks="calls"), Bill(write_5m=FIRST + 30 * 7, uncached=30 * 5)),
        (looped(30, marks="results"), FIRST + 30 * 7),
    ),
    "prompt caching / lookback: two runs, the entry and seventeen texts are 20 positions": history(
        FIRST_WRITTEN, looped(25, *words(17)), FIRST
    ),
    "prompt caching / lookback: two runs, the entry and eighteen texts are 21 positions": history(
        FIRST_WRITTEN, looped(25, *words(18)), 0
    ),
    "prompt caching / lookback: tool calls with text between them are no run": history(FIRST_WRITTEN, _spoken(10), 0),
}


@rules(LOOKBACK)
async def test_lookback_finds_entries_of_twenty_positions(api: Api, row: History) -> None:
    await api.play(row)


@rule("prompt caching / growing conversations: each turn reads what the one before it wrote")
async def test_a_conversation_that_moves_its_breakpoint_reads_all_before_it(api: Api) -> None:
    past: list[Message] = []
    cached = 0
    for turn in range(6):
        question: dict[str, Any] = text(FIRST if turn == 0 else 2)
        bill = await api.ask(messages=[*past, user(marked(question))])
        assert bill.read == cached
        past += [user(question), assistant(text(3))]
        cached = bill.cached
    assert cached == FIRST + 5 * (2 + 3)

from typing import Any

from tests.conformance.cases import (
    Api,
    Bill,
    Block,
    History,
    Message,
    Request,
    assistant,
    history,
    marked,
    rule,
    rules,
    said,
    text,
    text_block,
    tool_result,
    tool_use,
    user,
)

FIRST = 600
"""Tokens of the first block of `numbered`; the others have one each."""
BIG = text(FIRST)
WRITTEN = said(marked(BIG))


def words(count: int) -> list[Block]:
    """Return different texts of one token each, the last one marked."""
    *others, last = (text_block(f"{number:04}") for number in range(count))
    return [*others, marked(last)]


def numbered(count: int, *breakpoints: int) -> Request:
    """Return a request of *count* blocks, counted from 1 as in the documentation, with these marked."""
    blocks: list[Block] = [BIG, *(text_block(f"{number:04}") for number in range(2, count + 1))]
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
    return {"messages": [user(BIG), assistant(*calls), user(*results, *behind)]}


def _spoken(count: int) -> Request:
    """Return calls with text between them, the last one marked."""
    spoken = [block for number in range(count) for block in (text_block(f"{number:04}"), tool_use(f"toolu_{number}"))]
    results = [tool_result(f"toolu_{number}") for number in range(count)]
    return {"messages": [user(BIG), assistant(*spoken[:-1], marked(spoken[-1])), user(*results)]}


HISTORIES: dict[str, History] = {
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
        said(BIG, marked(text_block("monday"))), said(BIG, marked(text_block("friday"))), 0
    ),
    "prompt caching / lookback: a second explicit breakpoint takes the search up again": history(
        numbered(15, 15), numbered(50, 34, 50), Bill(read=up_to(15), write_5m=up_to(50) - up_to(15))
    ),
    "prompt caching / lookback: it goes on from the messages into system and tools": history(
        {"system": [marked(BIG)]}, said(*words(19), system=[BIG]), Bill(read=FIRST, write_5m=19)
    ),
    "prompt caching / lookback: one block more than reaches into system is a miss": history(
        {"system": [marked(BIG)]}, said(*words(20), system=[BIG]), 0
    ),
    "prompt caching / lookback: consecutive tool_use blocks are one position": history(
        WRITTEN, looped(30, marks="calls"), FIRST
    ),
    "prompt caching / lookback: consecutive tool_result blocks are one position": history(
        looped(30, marks="calls"),
        Bill(write_5m=FIRST + 30 * 7, uncached=30 * 5),
        looped(30, marks="results"),
        FIRST + 30 * 7,
    ),
    "prompt caching / lookback: two runs, the entry and seventeen texts are 20 positions": history(
        WRITTEN, looped(25, *words(17)), FIRST
    ),
    "prompt caching / lookback: two runs, the entry and eighteen texts are 21 positions": history(
        WRITTEN, looped(25, *words(18)), 0
    ),
    "prompt caching / lookback: tool calls with text between them are no run": history(WRITTEN, _spoken(10), 0),
}


@rules(HISTORIES)
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

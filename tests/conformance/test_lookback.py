from typing import Any

import pytest

from tests.conformance.cases import (
    Api,
    Bill,
    Block,
    Message,
    assistant,
    marked,
    rule,
    text,
    text_block,
    tool_result,
    tool_use,
    user,
)

FIRST = 600
"""Tokens of the first block of `numbered`; the others have one each."""


def numbered(count: int, *breakpoints: int) -> dict[str, Any]:
    """Return a request of *count* blocks, counted from 1 as in the documentation, with these marked."""
    blocks: list[Block] = [text(FIRST), *(text_block(f"{number:04}") for number in range(2, count + 1))]
    return {"messages": [user(*(_marked_at(block, at, breakpoints) for at, block in enumerate(blocks, 1)))]}


def _marked_at(block: Block, at: int, breakpoints: tuple[int, ...]) -> Block:
    return marked(block) if at in breakpoints else block


def up_to(block: int) -> int:
    """Return the tokens of `numbered` up to this block."""
    return FIRST + block - 1


@rule("prompt caching / lookback: entry at block 15, breakpoint at 35: checked are 35 to 16, a miss")
async def test_the_documented_example_misses(api: Api) -> None:
    await api.ask(**numbered(15, 15))
    assert await api.ask(**numbered(35, 35)) == Bill(write_5m=up_to(35))


@rule("prompt caching / lookback: entry at block 15, breakpoint at 34: the twentieth position is a hit")
async def test_one_block_nearer_hits(api: Api) -> None:
    await api.ask(**numbered(15, 15))
    assert await api.ask(**numbered(34, 34)) == Bill(read=up_to(15), write_5m=19)


@pytest.mark.parametrize("steps", [0, 1, 10, 18, 19])
@rule("prompt caching / lookback: 20 positions, the breakpoint is the first")
async def test_an_entry_is_found_up_to_nineteen_blocks_back(api: Api, steps: int) -> None:
    await api.ask(**numbered(3, 3))
    assert await api.ask(**numbered(3 + steps, 3 + steps)) == Bill(read=up_to(3), write_5m=steps)


@rule("prompt caching / lookback: it finds earlier writes, not content that stayed the same")
async def test_stable_content_that_was_never_marked_is_not_found(api: Api) -> None:
    """The marker was on a block that always changes, so there is no entry where the stable part ends."""
    stable = text(FIRST)
    await api.ask(messages=[user(stable, marked(text_block("monday")))])
    assert (await api.ask(messages=[user(stable, marked(text_block("friday")))])).read == 0


@rule("prompt caching / lookback: a second explicit breakpoint takes the search up again")
async def test_a_second_breakpoint_resumes_the_search(api: Api) -> None:
    await api.ask(**numbered(15, 15))
    assert await api.ask(**numbered(50, 34, 50)) == Bill(read=up_to(15), write_5m=up_to(50) - up_to(15))


@rule("prompt caching / lookback: it goes on from the messages into system and tools")
async def test_the_search_crosses_from_messages_into_system(api: Api) -> None:
    system = [marked(text(FIRST))]
    await api.ask(system=system)
    messages = [user(*(text_block(f"{number:04}") for number in range(18)), marked(text_block("last")))]
    assert await api.ask(system=[text(FIRST)], messages=messages) == Bill(read=FIRST, write_5m=19)


@rule("prompt caching / lookback: one block more than reaches into system is a miss")
async def test_the_search_for_the_system_ends_after_twenty_positions(api: Api) -> None:
    await api.ask(system=[marked(text(FIRST))])
    messages = [user(*(text_block(f"{number:04}") for number in range(19)), marked(text_block("last")))]
    assert (await api.ask(system=[text(FIRST)], messages=messages)).read == 0


@rule("prompt caching / growing conversations: each turn reads what the one before it wrote")
async def test_a_conversation_that_moves_its_breakpoint_reads_all_before_it(api: Api) -> None:
    history: list[Message] = []
    cached = 0
    for turn in range(6):
        question = text(FIRST if turn == 0 else 2)
        bill = await api.ask(messages=[*history, user(marked(question))])
        assert bill.read == cached
        history += [user(question), assistant(text(3))]
        cached = bill.cached
    assert cached == FIRST + 5 * (2 + 3)


def calls(count: int) -> Message:
    """Return an assistant message of *count* parallel tool calls."""
    return assistant(*(tool_use(f"toolu_{number}") for number in range(count)))


def results(count: int) -> list[Block]:
    """Return the results of these calls."""
    return [tool_result(f"toolu_{number}") for number in range(count)]


@rule("prompt caching / lookback: consecutive tool_use blocks are one position")
async def test_a_run_of_tool_calls_is_one_position(api: Api) -> None:
    await api.ask(messages=[user(marked(text(FIRST)))])
    asked = calls(30)
    asked["content"][-1] = marked(asked["content"][-1])
    assert (await api.ask(messages=[user(text(FIRST)), asked, user(*results(30))])).read == FIRST


@rule("prompt caching / lookback: consecutive tool_result blocks are one position")
async def test_a_run_of_tool_results_is_one_position(api: Api) -> None:
    asked = calls(30)
    marked_calls = assistant(*asked["content"][:-1], marked(asked["content"][-1]))
    written = await api.ask(messages=[user(text(FIRST)), marked_calls, user(*results(30))])
    *rest, last = results(30)
    assert (await api.ask(messages=[user(text(FIRST)), asked, user(*rest, marked(last))])).read == written.cached


@pytest.mark.parametrize(("texts", "is_found"), [(17, True), (18, False)])
@rule("prompt caching / lookback: runs of tool blocks count among the 20 positions")
async def test_runs_and_single_blocks_are_counted_together(api: Api, texts: int, *, is_found: bool) -> None:
    """Each run of calls or results counts as one position, and so does the entry; so seventeen texts fit."""
    await api.ask(messages=[user(marked(text(FIRST)))])
    *rest, last = (text_block(f"{number:04}") for number in range(texts))
    bill = await api.ask(messages=[user(text(FIRST)), calls(25), user(*results(25), *rest, marked(last))])
    assert bill.read == (FIRST if is_found else 0)


@rule("prompt caching / lookback: tool calls with text between them are no run")
async def test_tool_calls_with_text_between_them_are_positions_of_their_own(api: Api) -> None:
    await api.ask(messages=[user(marked(text(FIRST)))])
    spoken = [block for number in range(10) for block in (text_block(f"{number:04}"), tool_use(f"toolu_{number}"))]
    spoken[-1] = marked(spoken[-1])
    assert (await api.ask(messages=[user(text(FIRST)), assistant(*spoken), user(*results(10))])).read == 0

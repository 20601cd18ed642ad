from typing import Any

import pytest

from tests.conformance.cases import (
    Api,
    Bill,
    Block,
    assistant,
    control,
    image,
    layered,
    marked,
    open_api,
    replied,
    rule,
    text,
    text_block,
    tool,
    tool_result,
    tool_use,
    user,
)

BIG = text(600)
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}
ROUND = [user(BIG), assistant(tool_use("toolu_1")), user(tool_result("toolu_1"))]


@rule("prompt caching / breakpoints: what is marked is written once and read afterwards")
async def test_a_marked_prefix_is_written_and_then_read(api: Api) -> None:
    request = {"messages": [user(marked(BIG), text(5))]}
    assert await api.ask(**request) == Bill(write_5m=600, uncached=5)
    assert await api.ask(**request) == Bill(read=600, uncached=5)


@rule("prompt caching / breakpoints: without one nothing is written and nothing read")
async def test_a_request_without_a_breakpoint_uses_no_cache(api: Api) -> None:
    await api.ask(messages=[user(marked(BIG))])
    assert await api.ask(messages=[user(BIG)]) == Bill(uncached=600)


@rule("prompt caching / breakpoints: an entry is written at each breakpoint and nowhere else")
async def test_a_position_before_the_breakpoint_has_no_entry(api: Api) -> None:
    await api.ask(messages=[user(BIG, text(1), marked(text(2)))])
    assert await api.ask(messages=[user(BIG, marked(text(1)))]) == Bill(write_5m=601)


@rule("prompt caching / breakpoints: several breakpoints leave several entries")
async def test_every_breakpoint_leaves_an_entry(api: Api) -> None:
    await api.ask(messages=[user(marked(BIG), marked(text(1)), marked(text(2)))])
    assert await api.ask(messages=[user(marked(BIG), text(7, "z"))]) == Bill(read=600, uncached=7)
    assert await api.ask(messages=[user(BIG, marked(text(1)), text(7, "z"))]) == Bill(read=601, uncached=7)


@rule("prompt caching / lookup: the longest matching prefix wins")
async def test_the_longest_hit_is_read(api: Api) -> None:
    await api.ask(messages=[user(marked(BIG))])
    await api.ask(messages=[user(BIG, marked(text(10)))])
    grown = [user(marked(BIG), marked(text(10)), marked(text(1)))]
    assert await api.ask(messages=grown) == Bill(read=610, write_5m=1)


@rule("prompt caching / prefix order: tools, system, messages")
async def test_each_section_stands_behind_the_one_before(api: Api) -> None:
    """A change in one section invalidates the sections after it, whatever the order of parameters."""
    await api.ask(**layered())
    changed = layered(messages=[user(marked(text(8, "n")))])
    assert await api.ask(**changed) == Bill(read=670, write_5m=8)
    changed = layered(system=[marked(text(70, "t"))])
    assert await api.ask(**dict(reversed(changed.items()))) == Bill(read=600, write_5m=78)


@rule("prompt caching / limits: four breakpoints are accepted")
async def test_four_breakpoints_are_accepted(api: Api) -> None:
    blocks = [marked(BIG), *(marked(text(1)) for _ in range(3))]
    assert await api.ask(messages=[user(*blocks)]) == Bill(write_5m=603)


@rule("prompt caching / limits: a fifth breakpoint is refused")
async def test_a_fifth_breakpoint_is_refused(api: Api) -> None:
    request = layered(messages=[user(*(marked(text(1)) for _ in range(3)))])
    assert await api.refusal(**request) == "A maximum of 4 blocks with cache_control may be provided. Found 5."


@rule("prompt caching / cache_control: ephemeral is the only type")
async def test_another_type_of_cache_is_refused(api: Api) -> None:
    block = {**BIG, "cache_control": {"type": "persistent"}}
    assert await api.refusal(system=[block]) == "system.0.cache_control.type: Input should be 'ephemeral'"


@rule("prompt caching / cache_control: the ttl is 5m or 1h")
async def test_another_ttl_is_refused(api: Api) -> None:
    refusal = await api.refusal(system=[marked(BIG, "30m")])
    assert refusal == "system.0.cache_control.ttl: Input should be '5m' or '1h'"


@pytest.mark.parametrize(
    ("request_", "cached"),
    [
        ({"tools": [marked(tool(600))]}, 600),
        ({"system": [marked(BIG)]}, 600),
        ({"messages": [user(marked(BIG))]}, 600),
        ({"messages": [user(marked(image()))]}, 1_600),
        ({"messages": [user(marked(PDF))]}, 2_000),
        ({"messages": [user(BIG), assistant(marked(tool_use("toolu_1"))), ROUND[2]]}, 607),
        ({"messages": [*ROUND[:2], user(marked(tool_result("toolu_1")))]}, 612),
    ],
    ids=["tool", "system", "text", "image", "document", "tool_use", "tool_result"],
)
@rule("prompt caching / what can be cached: tools, system, text, images, documents, tool use and results")
async def test_every_cacheable_block_takes_a_breakpoint(api: Api, request_: dict[str, Any], cached: int) -> None:
    assert (await api.ask(**request_)).written == cached
    assert (await api.ask(**request_)).read == cached


@rule("prompt caching / what cannot be cached: thinking blocks directly")
async def test_a_thinking_block_takes_no_breakpoint() -> None:
    script = "default: [{thinking: hm, text: okay, times: always}]"
    async with open_api(script) as api:
        reply = await api.send(thinking={"type": "adaptive"})
        spoken = replied(reply)
        assert spoken["content"][0]["type"] == "thinking"
        spoken["content"][0] = marked(spoken["content"][0])
        refusal = await api.refusal(messages=[user(text(1)), spoken, user(text(1))], thinking={"type": "adaptive"})
    assert refusal == "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted"


@rule("prompt caching / what cannot be cached: thinking is cached with what follows it")
async def test_thinking_is_cached_as_part_of_what_comes_after_it() -> None:
    script = f"default: [{{thinking: {'h' * 400}, text: okay, times: always}}]"
    async with open_api(script) as api:
        adaptive = {"thinking": {"type": "adaptive"}, "max_tokens": 500}
        reply = await api.send(messages=[user(BIG)], **adaptive)
        messages = [user(BIG), replied(reply), user(marked(text(3)))]
        assert await api.ask(messages=messages, **adaptive) == Bill(write_5m=600 + 100 + 1 + 3)
        assert await api.ask(messages=messages, **adaptive) == Bill(read=600 + 100 + 1 + 3)


@rule("prompt caching / what cannot be cached: empty text blocks")
async def test_an_empty_text_takes_no_breakpoint() -> None:
    """Uses the lenient server, because strict mode rejects any empty text."""
    async with open_api(is_strict=False) as api:
        refusal = await api.refusal(messages=[user(BIG, marked(text_block("")))])
    assert refusal == "messages.0.content.1.text: cache_control cannot be set for empty text blocks"


@rule("prompt caching / what cannot be cached: sub-content blocks")
async def test_a_part_of_a_block_takes_no_breakpoint(api: Api) -> None:
    """Only the top-level block can be marked."""
    parts: list[Block] = [marked(BIG)]
    refusal = await api.refusal(messages=[*ROUND[:2], user(tool_result("toolu_1", parts))])
    assert refusal == (
        "messages.2.content.0.content.0.cache_control: cache_control can only be set on top-level content blocks"
    )


@rule("tool search / defer_loading: a deferred tool takes no breakpoint")
async def test_a_deferred_tool_takes_no_breakpoint(api: Api) -> None:
    assert await api.refusal(tools=[tool(60, "late", defer_loading=True, cache_control=control())]) == (
        "Tool 'late' cannot have both defer_loading=true and cache_control set. "
        "Tools with defer_loading cannot use prompt caching."
    )


@rule("prompt caching / key: cache_control is no part of it")
async def test_a_breakpoint_can_be_moved_and_dropped(api: Api) -> None:
    await api.ask(system=[marked(BIG, "1h")], messages=[user(marked(text(1)))])
    moved = await api.ask(system=[BIG], messages=[user(text(1), marked(text(2)))])
    assert moved == Bill(read=601, write_5m=2)


@pytest.mark.parametrize("is_string_first", [False, True])
@rule("messages / content: a string is one text block")
async def test_a_string_and_one_text_block_share_an_entry(api: Api, *, is_string_first: bool) -> None:
    block, string = {"role": "user", "content": [BIG]}, {"role": "user", "content": BIG["text"]}
    said = assistant(text_block("okay"))
    first, second = (string, block) if is_string_first else (block, string)
    await api.ask(messages=[first, said, user(marked(text(1)))])
    assert await api.ask(messages=[second, said, user(marked(text(1)))]) == Bill(read=602)


@rule("messages / system: a string is one text block")
async def test_a_system_string_and_one_system_block_share_an_entry(api: Api) -> None:
    await api.ask(system=BIG["text"], messages=[user(marked(text(1)))])
    assert await api.ask(system=[BIG], messages=[user(marked(text(1)))]) == Bill(read=601)


@rule("tool use / tool_result: string content is one text block")
async def test_a_result_string_and_one_result_block_share_an_entry(api: Api) -> None:
    asked = [user(BIG), assistant(tool_use("toolu_1"))]
    first = await api.ask(messages=[*asked, user(marked(tool_result("toolu_1", "done")))])
    second = await api.ask(messages=[*asked, user(marked(tool_result("toolu_1", [text_block("done")])))])
    assert second == Bill(read=first.written)


@rule("prompt caching / troubleshooting: key order inside tool_use input must be stable")
async def test_another_key_order_in_a_tool_call_breaks_the_prefix(api: Api) -> None:
    def conversation(**arguments: Any) -> dict[str, Any]:
        return {"messages": [user(marked(BIG)), assistant(tool_use("toolu_1", **arguments)), _answer()]}

    written = await api.ask(**conversation(a=1, b=2))
    assert await api.ask(**conversation(a=1, b=2)) == Bill(read=written.cached)
    reordered = await api.ask(**conversation(b=2, a=1))
    assert reordered == Bill(read=600, write_5m=written.cached - 600)


@rule("prompt caching / key: content must be identical to the last byte")
async def test_one_other_character_is_another_prefix(api: Api) -> None:
    await api.ask(messages=[user(marked(BIG))])
    changed = text_block(BIG["text"][:-1] + "y")
    assert await api.ask(messages=[user(marked(changed))]) == Bill(write_5m=600)


@rule("prompt caching / key: images must be identical too")
async def test_another_image_is_another_prefix(api: Api) -> None:
    await api.ask(messages=[user(marked(BIG), image("aGk="), marked(text(1)))])
    assert await api.ask(messages=[user(marked(BIG), image("aG8="), marked(text(1)))]) == Bill(read=600, write_5m=1_601)


@rule("prompt caching / key: the role of a message is part of it")
async def test_the_same_words_of_another_role_are_another_prefix(api: Api) -> None:
    await api.ask(messages=[user(marked(BIG)), user(text(1)), user(marked(text(1)))])
    changed = [user(marked(BIG)), assistant(text(1)), user(marked(text(1)))]
    assert await api.ask(messages=changed) == Bill(read=600, write_5m=2)


def _answer() -> dict[str, Any]:
    return user(marked(tool_result("toolu_1")))

from typing import Any

import pytest

from tests.conformance.cases import (
    Api,
    Bill,
    History,
    Message,
    Refusal,
    Request,
    assistant,
    control,
    history,
    image,
    layered,
    marked,
    open_api,
    refusal,
    replied,
    rule,
    rules,
    said,
    text,
    text_block,
    tool,
    tool_result,
    tool_use,
    user,
)

BIG = text(600)
ONE = marked(text(1))
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}
ASKED = [user(BIG), assistant(tool_use("toolu_1"))]
OKAY = assistant(text_block("okay"))
OTHER = text(600, "y")


def _called(**arguments: Any) -> Request:
    called = assistant(tool_use("toolu_1", **arguments))
    return {"messages": [user(marked(BIG)), called, user(marked(tool_result("toolu_1")))]}


HISTORIES: dict[str, History] = {
    "prompt caching / breakpoints: what is marked is written once and read afterwards": history(
        (said(marked(BIG), text(5)), Bill(write_5m=600, uncached=5)),
        (said(marked(BIG), text(5)), Bill(read=600, uncached=5)),
    ),
    "prompt caching / breakpoints: without one nothing is written and nothing read": history(
        said(marked(BIG)), said(BIG), Bill(uncached=600)
    ),
    "prompt caching / breakpoints: an entry is written at each breakpoint and nowhere else": history(
        said(BIG, text(1), marked(text(2))), said(BIG, ONE), Bill(write_5m=601)
    ),
    "prompt caching / breakpoints: several breakpoints leave several entries": history(
        said(marked(BIG), ONE, marked(text(2))),
        (said(marked(BIG), text(7, "z")), Bill(read=600, uncached=7)),
        (said(BIG, ONE, text(7, "z")), Bill(read=601, uncached=7)),
    ),
    "prompt caching / lookup: the longest matching prefix wins": history(
        said(marked(BIG)),
        said(BIG, marked(text(10))),
        (said(marked(BIG), marked(text(10)), ONE), Bill(read=610, write_5m=1)),
    ),
    "prompt caching / prefix order: tools, system, messages, whatever the order of parameters": history(
        layered(),
        (layered(messages=[user(marked(text(8, "n")))]), Bill(read=670, write_5m=8)),
        (dict(reversed(layered(system=[marked(text(70, "t"))]).items())), Bill(read=600, write_5m=78)),
    ),
    "prompt caching / limits: four breakpoints are accepted": history(
        said(marked(BIG), ONE, ONE, ONE), Bill(write_5m=603)
    ),
    "prompt caching / key: cache_control is no part of it": history(
        said(ONE, system=[marked(BIG, "1h")]), said(text(1), marked(text(2)), system=[BIG]), Bill(read=601, write_5m=2)
    ),
    "messages / content: a string is one text block": history(
        {"messages": [user(BIG), OKAY, user(ONE)]},
        ({"messages": [{"role": "user", "content": BIG["text"]}, OKAY, user(ONE)]}, Bill(read=602)),
        {"messages": [{"role": "user", "content": OTHER["text"]}, OKAY, user(ONE)]},
        ({"messages": [user(OTHER), OKAY, user(ONE)]}, Bill(read=602)),
    ),
    "messages / system: a string is one text block": history(
        said(ONE, system=BIG["text"]), said(ONE, system=[BIG]), Bill(read=601)
    ),
    "tool use / tool_result: string content is one text block": history(
        ({"messages": [*ASKED, user(marked(tool_result("toolu_1", "done")))]}, Bill(write_5m=612)),
        ({"messages": [*ASKED, user(marked(tool_result("toolu_1", [text_block("done")])))]}, Bill(read=612)),
    ),
    "prompt caching / troubleshooting: key order inside tool_use input must be stable": history(
        (_called(a=1, b=2), Bill(write_5m=616)),
        (_called(a=1, b=2), Bill(read=616)),
        (_called(b=2, a=1), Bill(read=600, write_5m=16)),
    ),
    "prompt caching / key: content must be identical to the last byte": history(
        said(marked(BIG)), said(marked(text_block(BIG["text"][:-1] + "y"))), Bill(write_5m=600)
    ),
    "prompt caching / key: images must be identical too": history(
        said(marked(BIG), image("aGk="), ONE), said(marked(BIG), image("aG8="), ONE), Bill(read=600, write_5m=1_601)
    ),
    "prompt caching / key: the role of a message is part of it": history(
        {"messages": [user(marked(BIG)), user(text(1)), user(ONE)]},
        ({"messages": [user(marked(BIG)), assistant(text(1)), user(ONE)]}, Bill(read=600, write_5m=2)),
    ),
}


@rules(HISTORIES)
async def test_history_with_breakpoints_is_billed_as_documented(api: Api, row: History) -> None:
    await api.play(row)


REFUSALS: dict[str, Refusal] = {
    "prompt caching / limits: a fifth breakpoint is refused": refusal(
        layered(messages=[user(ONE, ONE, ONE)]), "A maximum of 4 blocks with cache_control may be provided. Found 5."
    ),
    "prompt caching / cache_control: ephemeral is the only type": refusal(
        {"system": [{**BIG, "cache_control": {"type": "persistent"}}]},
        "system.0.cache_control.type: Input should be 'ephemeral'",
    ),
    "prompt caching / cache_control: the ttl is 5m or 1h": refusal(
        {"system": [marked(BIG, "30m")]}, "system.0.cache_control.ttl: Input should be '5m' or '1h'"
    ),
    "prompt caching / what cannot be cached: sub-content blocks": refusal(
        {"messages": [*ASKED, user(tool_result("toolu_1", [marked(BIG)]))]},
        "messages.2.content.0.content.0.cache_control: cache_control can only be set on top-level content blocks",
    ),
    "tool search / defer_loading: a deferred tool takes no breakpoint": refusal(
        {"tools": [tool(60, "late", defer_loading=True, cache_control=control())]},
        "Tool 'late' cannot have both defer_loading=true and cache_control set. "
        "Tools with defer_loading cannot use prompt caching.",
    ),
}


@rules(REFUSALS)
async def test_breakpoint_is_refused(api: Api, row: Refusal) -> None:
    await api.check_refusal(row)


@pytest.mark.parametrize(
    ("request_", "cached"),
    [
        ({"tools": [marked(tool(600))]}, 600),
        ({"system": [marked(BIG)]}, 600),
        (said(marked(BIG)), 600),
        (said(marked(image())), 1_600),
        (said(marked(PDF)), 2_000),
        ({"messages": [ASKED[0], assistant(marked(tool_use("toolu_1"))), user(tool_result("toolu_1"))]}, 607),
        ({"messages": [*ASKED, user(marked(tool_result("toolu_1")))]}, 612),
    ],
    ids=["tool", "system", "text", "image", "document", "tool_use", "tool_result"],
)
@rule("prompt caching / what can be cached: tools, system, text, images, documents, tool use and results")
async def test_every_cacheable_block_takes_a_breakpoint(api: Api, request_: Request, cached: int) -> None:
    assert (await api.ask(**request_)).written == cached
    assert (await api.ask(**request_)).read == cached


@rule("prompt caching / what cannot be cached: thinking blocks directly, but with what follows them")
async def test_thinking_takes_no_breakpoint_and_is_cached_with_what_follows() -> None:
    async with open_api(f"default: [{{thinking: {'h' * 400}, text: okay, times: always}}]") as api:
        adaptive = {"thinking": {"type": "adaptive"}, "max_tokens": 500}
        spoken = replied(await api.send(**said(BIG), **adaptive))
        messages = [user(BIG), spoken, user(marked(text(3)))]
        assert await api.ask(messages=messages, **adaptive) == Bill(write_5m=600 + 100 + 1 + 3)
        assert await api.ask(messages=messages, **adaptive) == Bill(read=600 + 100 + 1 + 3)
        assert spoken["content"][0]["type"] == "thinking"
        spoken["content"][0] = marked(spoken["content"][0])
        refusal = await api.refusal(messages=messages, **adaptive)
    assert refusal == "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted"


@rule("prompt caching / what cannot be cached: empty text blocks")
async def test_an_empty_text_takes_no_breakpoint() -> None:
    """Uses the lenient server, because strict mode rejects any empty text."""
    async with open_api(is_strict=False) as api:
        refusal = await api.refusal(**said(BIG, marked(text_block(""))))
    assert refusal == "messages.0.content.1.text: cache_control cannot be set for empty text blocks"


AUTOMATIC = {"cache_control": control()}
LONG = {"model": "claude-haiku-4-5"}


def _searched(*behind: dict[str, Any]) -> list[Message]:
    """Return a conversation in which the server's own tool has found a result."""
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    return [user(text(1)), assistant(use, found), user(*behind)]


AUTOMATIC_HISTORIES: dict[str, History] = {
    "automatic caching / placement: a top-level cache_control marks the last cacheable block": history(
        (said(text(1), text(2), system=[BIG], **AUTOMATIC), Bill(write_5m=603)),
        (said(text(1), text(2), system=[BIG], **AUTOMATIC), Bill(read=603)),
    ),
    "automatic caching / conversations: the breakpoint moves forward with each turn": history(
        said(BIG, **AUTOMATIC),
        ({"messages": [user(BIG), assistant(text(3)), user(text(4))], **AUTOMATIC}, Bill(read=600, write_5m=7)),
    ),
    "automatic caching / ttl: the top-level ttl is the breakpoint's": history(
        said(BIG, cache_control=control("1h")), Bill(write_1h=600)
    ),
    "automatic caching / combined: explicit breakpoints keep their places": history(
        said(text(1), system=[marked(BIG)], **AUTOMATIC),
        (said(text(2), system=[marked(BIG)]), Bill(read=600, uncached=2)),
    ),
    "automatic caching / edge cases: a last block marked with the same ttl makes it a no-op": history(
        (said(marked(BIG), **AUTOMATIC), Bill(write_5m=600)),
        (said(marked(BIG)), Bill(read=600)),
        (said(marked(OTHER, "5m"), **AUTOMATIC), Bill(write_5m=600)),
        (said(marked(OTHER, "5m")), Bill(read=600)),
    ),
    "automatic caching / limits: it may be the fourth breakpoint": history(
        layered(messages=[user(ONE, text(1))], **AUTOMATIC), Bill(write_5m=672)
    ),
    "automatic caching / edge cases: from an empty prefill it walks back to the nearest eligible block": history(
        {"messages": [user(text(5_000)), assistant(text_block(""))], **LONG, **AUTOMATIC},
        (said(marked(text(5_000)), **LONG), Bill(read=5_000)),
    ),
    "automatic caching / minimum: a short prompt is not cached": history(
        said(text(511), **AUTOMATIC), Bill(uncached=511)
    ),
    "tool use with prompt caching / server tools: nothing is cached for a request without a breakpoint": history(
        {"system": [BIG], "messages": _searched(text(5))}, {"system": [BIG], "messages": _searched(text(5))}, 0
    ),
}


@rules(AUTOMATIC_HISTORIES)
async def test_history_with_automatic_caching_is_billed_as_documented(api: Api, row: History) -> None:
    await api.play(row)


AUTOMATIC_REFUSALS: dict[str, Refusal] = {
    **{
        f"automatic caching / edge cases: a last block marked {explicit} is refused under {top}": refusal(
            said(marked(BIG, explicit), cache_control=control(top)),
            f"cache_control.ttl: the last cacheable block already has a cache_control with ttl='{explicit or '5m'}'",
        )
        for explicit, top in [("1h", None), ("1h", "5m"), (None, "1h"), ("5m", "1h")]
    },
    "automatic caching / edge cases: four explicit breakpoints leave no slot for it": refusal(
        layered(messages=[user(ONE, ONE, text(1))], **AUTOMATIC),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    "automatic caching / mixed ttl: an automatic hour behind explicit five minutes is refused": refusal(
        {"system": [marked(BIG)], "cache_control": control("1h")},
        "cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. ...",
    ),
}


@rules(AUTOMATIC_REFUSALS)
async def test_automatic_caching_is_refused(api: Api, row: Refusal) -> None:
    await api.check_refusal(row)


@rule("automatic caching / edge cases: without an eligible block nothing is cached and nothing refused")
async def test_nothing_eligible_is_silently_not_cached() -> None:
    """Uses the lenient server: strict mode rejects a request of thinking only."""
    alone = {"type": "thinking", "thinking": "h" * 2_400, "signature": "s"}
    async with open_api(is_strict=False) as api:
        assert await api.ask(**said(alone), **AUTOMATIC) == Bill(uncached=600)


@rule("tool use with prompt caching / server tools: a marked request gets a 5m breakpoint on their results")
async def test_results_of_server_tools_are_cached_with_any_breakpoint(api: Api) -> None:
    first = await api.ask(system=[marked(BIG, "1h")], messages=_searched(text(5)))
    assert (first.write_1h, first.uncached) == (600, 5)
    assert first.write_5m > 0
    again = await api.ask(system=[marked(BIG, "1h")], messages=_searched(text(7)))
    assert again == Bill(read=600 + first.write_5m, uncached=7)

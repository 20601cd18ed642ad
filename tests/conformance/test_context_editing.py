from typing import Any

import attrs
import pytest

from coterie.agents.loop.model.catalog import load_models
from tests.conformance.cases import (
    MODEL,
    Api,
    Bill,
    Block,
    History,
    Message,
    Refusal,
    Request,
    assistant,
    control,
    history,
    marked,
    open_api,
    refusal,
    replied,
    rule,
    rules,
    text,
    tool_result,
    tool_use,
    user,
)

BETA = ("context-management-2025-06-27",)
FIRST = 600


def clear_tools(**fields: Any) -> dict[str, Any]:
    """Return the edit that clears tool results, by default triggered by the second tool use."""
    return {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 1}, **fields}


def clear_thinking(keep: Any) -> dict[str, Any]:
    return {"type": "clear_thinking_20251015", "keep": keep}


def uses(value: int) -> dict[str, Any]:
    """Return a number of tool uses."""
    return {"type": "tool_uses", "value": value}


def tokens(value: int) -> dict[str, Any]:
    """Return an amount of input tokens."""
    return {"type": "input_tokens", "value": value}


def edits(*listed: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters for these edits."""
    return {"context_management": {"edits": list(listed)}, "betas": BETA}


def rounds(count: int, tool_name: str = "lookup", *, size: int = 100) -> list[Message]:
    """Return a conversation of *count* tool rounds, each with a result of *size* tokens."""
    messages: list[Message] = [user(text(FIRST))]
    for number in range(count):
        call = f"toolu_{tool_name}_{number}"
        messages += [assistant(tool_use(call, tool_name, n=number)), user(tool_result(call, "r" * 4 * size))]
    return messages


async def applied(api: Api, messages: list[Message], *listed: dict[str, Any], **params: Any) -> list[dict[str, Any]]:
    """Return the `applied_edits` of a reply."""
    reply = await api.send(messages=messages, **edits(*listed), **params)
    found: list[dict[str, Any]] = reply["context_management"]["applied_edits"]
    return found


@rule("context editing / clear_tool_uses: the oldest results go, keep says how many stay")
async def test_the_oldest_tool_results_are_cleared(api: Api) -> None:
    (edit,) = await applied(api, rounds(5), clear_tools(keep=uses(2)))
    assert (edit["type"], edit["cleared_tool_uses"]) == ("clear_tool_uses_20250919", 3)
    before = (await api.count(messages=rounds(5)))["input_tokens"]
    after = (await api.count(messages=rounds(5), **edits(clear_tools(keep=uses(2)))))["input_tokens"]
    assert edit["cleared_input_tokens"] == before - after > 0


@attrs.frozen
class Clearing:
    """An edit of a conversation, and the number of tool uses that it clears."""

    uses: int
    edit: dict[str, Any]
    messages: list[Message] = attrs.field(factory=lambda: rounds(5))


CLEARINGS = {
    "context editing / clear_tool_uses: three are kept by default": Clearing(2, clear_tools()),
    "context editing / clear_tool_uses: a trigger may count tool uses": Clearing(2, clear_tools(trigger=uses(4))),
    "context editing / clear_tool_uses: as many tool uses do not trigger": Clearing(0, clear_tools(trigger=uses(5))),
    "context editing / clear_tool_uses: a trigger may count input tokens": Clearing(
        2, clear_tools(trigger=tokens(1_000))
    ),
    "context editing / clear_tool_uses: fewer tokens do not trigger": Clearing(0, clear_tools(trigger=tokens(2_000))),
    "context editing / clear_tool_uses: the default trigger is 100,000 input tokens": Clearing(
        2, {"type": "clear_tool_uses_20250919"}, rounds(5, size=20_100)
    ),
    "context editing / clear_tool_uses: fewer than 100,000 tokens do not trigger": Clearing(
        0, {"type": "clear_tool_uses_20250919"}, rounds(5, size=19_000)
    ),
    "context editing / clear_at_least: an edit that can clear enough is applied": Clearing(
        2, clear_tools(clear_at_least=tokens(100))
    ),
    "context editing / clear_at_least: what cannot clear enough is not applied": Clearing(
        0, clear_tools(clear_at_least=tokens(100_000))
    ),
    "context editing / exclude_tools: excluded tools are never cleared": Clearing(
        3, clear_tools(keep=uses(1), exclude_tools=["search"]), [*rounds(4, "lookup"), *rounds(4, "search")[1:]]
    ),
    "context editing / response: an edit that did nothing is not listed": Clearing(0, clear_tools(), rounds(2)),
}


@rules(CLEARINGS)
async def test_edit_clears_as_many_tool_uses_as_it_says(api: Api, row: Clearing) -> None:
    found = [edit["cleared_tool_uses"] for edit in await applied(api, row.messages, row.edit)]
    assert found == ([row.uses] if row.uses else [])


@pytest.mark.parametrize(("inputs", "is_larger"), [(False, False), (True, True), (["lookup"], True), (["x"], False)])
@rule("context editing / clear_tool_inputs: inputs go too when asked, by name or all")
async def test_tool_inputs_are_cleared_on_request(api: Api, inputs: Any, *, is_larger: bool) -> None:
    (usual,) = await applied(api, rounds(5), clear_tools())
    (edit,) = await applied(api, rounds(5), clear_tools(clear_tool_inputs=inputs))
    assert edit["cleared_tool_uses"] == usual["cleared_tool_uses"]
    assert (edit["cleared_input_tokens"] > usual["cleared_input_tokens"]) == is_larger


@rule("context editing / token counting: the count is given before and after")
async def test_a_count_gives_both_figures(api: Api) -> None:
    plain = await api.count(messages=rounds(5))
    counted = await api.count(messages=rounds(5), **edits(clear_tools()))
    assert counted["context_management"] == {"original_input_tokens": plain["input_tokens"]}
    assert counted["input_tokens"] == (await api.ask(messages=rounds(5), **edits(clear_tools()))).total
    assert counted["input_tokens"] < plain["input_tokens"]


@rule("context editing / streaming: applied edits stand beside the last message_delta")
async def test_a_stream_ends_with_its_applied_edits(whole: Api) -> None:
    create: Any = whole.client.beta.messages.create
    request = {"context_management": {"edits": [clear_tools()]}, "betas": list(BETA)}
    stream = await create(model=MODEL, max_tokens=16, messages=rounds(5), stream=True, **request)
    events = [event.to_dict() async for event in stream]
    (ending,) = [event for event in events if event["type"] == "message_delta"]
    (edit,) = ending["context_management"]["applied_edits"]
    assert edit["cleared_tool_uses"] == 2
    assert "context_management" not in events[0]["message"]


@rule("context editing / prompt caching: clearing breaks the cache where it begins")
async def test_clearing_loses_the_cache_from_the_first_cleared_result_on(api: Api) -> None:
    _, *middle, last = rounds(5)
    messages = [user(marked(text(FIRST))), *middle, user(marked(last["content"][0]))]
    written = await api.ask(messages=messages)
    assert await api.ask(messages=messages) == Bill(read=written.cached)
    edited = await api.ask(messages=messages, **edits(clear_tools()))
    assert edited.read == FIRST
    assert await api.ask(messages=messages, **edits(clear_tools())) == Bill(read=edited.cached)
    idle = clear_tools(trigger=uses(9))
    assert await api.ask(messages=messages, **edits(idle)) == Bill(read=written.cached), "it does nothing"


REFUSALS: dict[str, Refusal] = {
    "context editing / header: without its beta the parameter is refused": refusal(
        {"messages": rounds(5), "context_management": {"edits": [clear_tools()]}},
        "context_management: Extra inputs are not permitted",
    ),
    "context editing / combining: clear_thinking must be first": refusal(
        {"messages": rounds(5), **edits(clear_tools(), clear_thinking("all"))},
        "context_management.edits: `clear_thinking_20251015` must be the first edit",
    ),
    "context editing / clear_thinking: keep must be above zero": refusal(
        edits(clear_thinking({"type": "thinking_turns", "value": 0})), "context_management.edits.0.keep.value: ..."
    ),
    "context editing / edits: an unknown edit is refused": refusal(
        edits({"type": "clear_everything"}), "context_management.edits.0.type: ..."
    ),
}


@rules(REFUSALS)
async def test_edit_is_refused(api: Api, row: Refusal) -> None:
    await api.check_refusal(row)


THOUGHTFUL = f"default: [{{thinking: {'h' * 400}, text: okay, times: always}}]"
ADAPTIVE = {"max_tokens": 500, "thinking": {"type": "adaptive"}}


async def thoughtful(api: Api, count: int) -> list[Message]:
    """Return a conversation of *count* turns with thinking of a hundred tokens each, and a last question."""
    messages: list[Message] = [user(text(FIRST))]
    for _ in range(count):
        reply = await api.send(messages=messages, **ADAPTIVE)
        messages += [replied(reply), user(text(2))]
    return messages


def turns(value: int) -> dict[str, Any]:
    """Return a number of turns with thinking."""
    return {"type": "thinking_turns", "value": value}


@pytest.mark.parametrize(
    ("keep", "count"), [(turns(1), 3), (turns(2), 2), (turns(3), 1), ("all", 0), ({"type": "all"}, 0)]
)
@rule("context editing / clear_thinking: the last turns with thinking are kept; all clears nothing and keeps the cache")
async def test_thinking_is_kept_by_turns(keep: Any, count: int) -> None:
    async with open_api(THOUGHTFUL) as api:
        messages = [*(await thoughtful(api, 4))[:-1], user(marked(text(2)))]
        written = await api.ask(messages=messages, **ADAPTIVE)
        reply = await api.send(messages=messages, **ADAPTIVE, **edits(clear_thinking(keep)))
    cleared = {"cleared_thinking_turns": count, "cleared_input_tokens": 100 * count}
    expected = [{"type": "clear_thinking_20251015", **cleared}] if count else []
    assert reply["context_management"] == {"applied_edits": expected}
    assert (Bill.of(reply["usage"]) == Bill(read=written.cached)) == (count == 0)


@rule("context editing / combining: both edits are applied and reported in order")
async def test_both_edits_are_applied() -> None:
    async with open_api(THOUGHTFUL) as api:
        messages = [*(await thoughtful(api, 3)), *rounds(5)[1:]]
        both = clear_thinking(turns(1)), clear_tools()
        first, second = await applied(api, messages, *both, **ADAPTIVE)
    assert (first["type"], first["cleared_thinking_turns"]) == ("clear_thinking_20251015", 2)
    assert (second["type"], second["cleared_tool_uses"]) == ("clear_tool_uses_20250919", 2)


@rule("context editing / clear_thinking: an older model keeps what it is told to keep")
async def test_an_older_model_keeps_thinking_when_told_to() -> None:
    async with open_api(THOUGHTFUL) as api:
        model = {"model": "claude-haiku-4-5", "max_tokens": 2_000}
        thinking = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
        first = await api.send(messages=[user(text(FIRST))], **model, **thinking)
        messages = [user(text(FIRST)), replied(first), user(text(2))]
        stripped = await api.ask(messages=messages, **model, **thinking)
        kept = await api.ask(messages=messages, **model, **thinking, **edits(clear_thinking("all")))
    assert kept.total - stripped.total == 100


EDITS_BETA = (load_models().betas["cache_edits"],)
RESULT = 104
"""Tokens of a tool result with a hundred tokens of text."""
ASKED = [user(text(600)), assistant(tool_use("toolu_1"))]
CACHED = 600 + 2 * (7 + RESULT)
"""Tokens of two tool rounds."""


def delete(*references: str) -> Block:
    """Return an edit of the cached prefix."""
    return {"type": "cache_edits", "edits": [{"type": "delete", "cache_reference": name} for name in references]}


def two_rounds(*last: Block) -> list[Message]:
    """Return two tool rounds, with *last* after the second result."""
    first, second = (tool_result(name, "r" * 400) for name in ("toolu_1", "toolu_2"))
    return [*ASKED, user(first), assistant(tool_use("toolu_2")), user(marked(second), *last)]


def edited(*last: Block) -> Request:
    return {"messages": two_rounds(*last), "betas": EDITS_BETA}


def _far_behind() -> Request:
    """Return the edit, then as many blocks as a lookback passes."""
    blocks = [text(1, letter) for letter in "abcdefghijklmnopqrs"]
    request = edited(delete("toolu_1"), *blocks[:-1], marked(blocks[-1]))
    request["messages"][-1]["content"][0].pop("cache_control")
    return request


EDITED_HISTORIES: dict[str, History] = {
    "cache edits / delete: the prefix is found as it was, and the deleted result is not billed": history(
        ({"messages": two_rounds()}, Bill(write_5m=CACHED)),
        (edited(delete("toolu_1"), text(2)), Bill(read=CACHED - RESULT, uncached=2)),
    ),
    "cache edits / delete: several results at once": history(
        {"messages": two_rounds()},
        (edited(delete("toolu_1", "toolu_2"), text(2)), Bill(read=CACHED - 2 * RESULT, uncached=2)),
    ),
    "cache edits / lookback: an edit costs no position": history(
        {"messages": two_rounds()}, _far_behind(), CACHED - RESULT
    ),
    "cache edits / automatic caching: the marker goes to the block before an edit": history(
        {**edited(), "messages": [*ASKED, user(tool_result("toolu_1"), delete("toolu_1"))], "cache_control": control()},
        ({"messages": [*ASKED, user(marked(tool_result("toolu_1")))]}, Bill(read=612)),
    ),
}


@rules(EDITED_HISTORIES)
async def test_cache_edit_is_billed_as_documented(api: Api, row: History) -> None:
    await api.play(row)


@rule("cache edits / usage: cache_deleted_input_tokens is what an edit newly deleted, and absent without an edit")
async def test_usage_says_what_was_newly_deleted(api: Api) -> None:
    reply = await api.send(**edited(text(2)))
    assert "cache_deleted_input_tokens" not in reply["usage"]
    said = edited(delete("toolu_1"), marked(text(2)))
    first = (await api.send(**said))["usage"]
    assert first["cache_deleted_input_tokens"] == RESULT
    said["messages"] += [assistant(text(1)), user(text(3))]
    second = (await api.send(**said))["usage"]
    assert Bill.of(second) == Bill(read=Bill.of(first).cached, uncached=4)
    assert second["cache_deleted_input_tokens"] == 0


def _malformed(edit: dict[str, str]) -> Request:
    return edited({"type": "cache_edits", "edits": [edit]})


EDIT_REFUSALS: dict[str, Refusal] = {
    "cache edits / header: without its beta the block is unknown": refusal(
        {"messages": two_rounds(delete("toolu_1"))},
        "messages.4.content.1: Input tag 'cache_edits' does not match any of the expected tags",
    ),
    "cache edits / delete: the result must be in the request": refusal(
        edited(delete("toolu_9")),
        "messages.4.content.1.edits.0.cache_reference: no `tool_result` of toolu_9 is in this request",
    ),
    "cache edits / placement: only in user messages": refusal(
        {"messages": [*two_rounds(), assistant(delete("toolu_1")), user(text(1))], "betas": EDITS_BETA},
        "messages.5.content.0: `cache_edits` blocks can only be in `user` messages",
    ),
    "cache edits / edits: an edit is a deletion": refusal(
        _malformed({"type": "replace", "cache_reference": "toolu_1"}), "messages.4.content.1.edits.0.type: ..."
    ),
    "cache edits / edits: an edit has a reference": refusal(
        _malformed({"type": "delete"}), "messages.4.content.1.edits.0.cache_reference: ..."
    ),
    "cache edits / breakpoints: an edit takes none": refusal(
        edited(marked(delete("toolu_1"))),
        "messages.4.content.1.cache_edits.cache_control: Extra inputs are not permitted",
    ),
}


@rules(EDIT_REFUSALS)
async def test_cache_edit_is_refused(api: Api, row: Refusal) -> None:
    await api.check_refusal(row)

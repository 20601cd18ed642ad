from coterie.agents.loop.model.catalog import load_models
from tests.conformance.cases import (
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
    refusal,
    rule,
    rules,
    text,
    tool_result,
    tool_use,
    user,
)

BETA = (load_models().betas["cache_edits"],)
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
    return {"messages": two_rounds(*last), "betas": BETA}


def _far_behind() -> Request:
    """Return the edit, then as many blocks as a lookback passes."""
    blocks = [text(1, letter) for letter in "abcdefghijklmnopqrs"]
    request = edited(delete("toolu_1"), *blocks[:-1], marked(blocks[-1]))
    request["messages"][-1]["content"][0].pop("cache_control")
    return request


HISTORIES: dict[str, History] = {
    "cache edits / delete: the prefix is found as it was, and the deleted result is not billed": history(
        {"messages": two_rounds()},
        Bill(write_5m=CACHED),
        edited(delete("toolu_1"), text(2)),
        Bill(read=CACHED - RESULT, uncached=2),
    ),
    "cache edits / delete: several results at once": history(
        {"messages": two_rounds()},
        edited(delete("toolu_1", "toolu_2"), text(2)),
        Bill(read=CACHED - 2 * RESULT, uncached=2),
    ),
    "cache edits / lookback: an edit costs no position": history(
        {"messages": two_rounds()}, _far_behind(), CACHED - RESULT
    ),
    "cache edits / automatic caching: the marker goes to the block before an edit": history(
        {**edited(), "messages": [*ASKED, user(tool_result("toolu_1"), delete("toolu_1"))], "cache_control": control()},
        {"messages": [*ASKED, user(marked(tool_result("toolu_1")))]},
        Bill(read=612),
    ),
}


@rules(HISTORIES)
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


REFUSALS: dict[str, Refusal] = {
    "cache edits / header: without its beta the block is unknown": refusal(
        {"messages": two_rounds(delete("toolu_1"))},
        "messages.4.content.1: Input tag 'cache_edits' does not match any of the expected tags",
    ),
    "cache edits / delete: the result must be in the request": refusal(
        edited(delete("toolu_9")),
        "messages.4.content.1.edits.0.cache_reference: no `tool_result` of toolu_9 is in this request",
    ),
    "cache edits / placement: only in user messages": refusal(
        {"messages": [*two_rounds(), assistant(delete("toolu_1")), user(text(1))], "betas": BETA},
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


@rules(REFUSALS)
async def test_cache_edit_is_refused(api: Api, row: Refusal) -> None:
    await api.check_refusal(row)

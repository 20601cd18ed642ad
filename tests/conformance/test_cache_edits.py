import pytest

from coterie.agents.loop.model.catalog import load_models
from tests.conformance.cases import (
    Api,
    Bill,
    Block,
    Message,
    assistant,
    control,
    marked,
    rule,
    text,
    tool_result,
    tool_use,
    user,
)

BETA = (load_models().betas["cache_edits"],)
RESULT = 104
"""Tokens of a tool result with a hundred tokens of text."""


def delete(*references: str) -> Block:
    """Return an edit of the cached prefix."""
    return {"type": "cache_edits", "edits": [{"type": "delete", "cache_reference": name} for name in references]}


def two_rounds(*last: Block) -> list[Message]:
    """Return two tool rounds, with *last* after the second result."""
    first, second = (tool_result(name, "r" * 400) for name in ("toolu_1", "toolu_2"))
    return [
        user(text(600)),
        assistant(tool_use("toolu_1")),
        user(first),
        assistant(tool_use("toolu_2")),
        user(marked(second), *last),
    ]


async def _cached(api: Api) -> int:
    """Write the two rounds, and return the number of cached tokens."""
    return (await api.ask(messages=two_rounds())).cached


@rule("cache edits / delete: the prefix is found as it was, and the deleted result is not billed")
async def test_a_deleted_result_is_not_billed_and_the_prefix_is_still_found(api: Api) -> None:
    cached = await _cached(api)
    edited = await api.ask(messages=two_rounds(delete("toolu_1"), text(2)), betas=BETA)
    assert edited == Bill(read=cached - RESULT, uncached=2)


@rule("cache edits / usage: cache_deleted_input_tokens says what went")
async def test_usage_says_what_was_deleted(api: Api) -> None:
    await _cached(api)
    reply = await api.send(messages=two_rounds(delete("toolu_1"), text(2)), betas=BETA)
    assert reply["usage"]["cache_deleted_input_tokens"] == RESULT


@rule("cache edits / usage: the field is absent without an edit")
async def test_usage_has_no_such_field_without_an_edit(api: Api) -> None:
    reply = await api.send(messages=two_rounds(text(2)), betas=BETA)
    assert "cache_deleted_input_tokens" not in reply["usage"]


@rule("cache edits / later requests: an edit that stays in its place deletes nothing new")
async def test_an_edit_sent_again_in_its_place_keeps_its_effect(api: Api) -> None:
    await _cached(api)
    history = two_rounds(delete("toolu_1"), marked(text(2)))
    first = await api.ask(messages=history, betas=BETA)
    reply = await api.send(messages=[*history, assistant(text(1)), user(text(3))], betas=BETA)
    assert Bill.of(reply["usage"]) == Bill(read=first.cached, uncached=4)
    assert reply["usage"]["cache_deleted_input_tokens"] == 0


@rule("cache edits / delete: several results at once")
async def test_several_results_go_at_once(api: Api) -> None:
    cached = await _cached(api)
    edited = await api.ask(messages=two_rounds(delete("toolu_1", "toolu_2"), text(2)), betas=BETA)
    assert edited == Bill(read=cached - 2 * RESULT, uncached=2)


@rule("cache edits / lookback: an edit costs no position")
async def test_an_edit_costs_no_position_of_the_lookback(api: Api) -> None:
    cached = await _cached(api)
    blocks = [text(1, letter) for letter in "abcdefghijklmnopqrs"]
    last = [delete("toolu_1"), *blocks[:-1], marked(blocks[-1])]
    messages = two_rounds(*last)
    messages[-1]["content"][0].pop("cache_control")
    assert (await api.ask(messages=messages, betas=BETA)).read == cached - RESULT


@rule("cache edits / automatic caching: the marker goes to the block before an edit")
async def test_automatic_caching_passes_over_an_edit(api: Api) -> None:
    asked = [user(text(600)), assistant(tool_use("toolu_1"))]
    edited = [*asked, user(tool_result("toolu_1"), delete("toolu_1"))]
    await api.ask(messages=edited, cache_control=control(), betas=BETA)
    bill = await api.ask(messages=[*asked, user(marked(tool_result("toolu_1")))])
    assert (bill.read, bill.written) == (bill.total, 0)


@rule("cache edits / header: without its beta the block is unknown")
async def test_the_beta_header_is_needed(api: Api) -> None:
    assert "cache_edits" in await api.refusal(messages=two_rounds(delete("toolu_1")))


@rule("cache edits / delete: the result must be in the request")
async def test_an_unknown_result_cannot_be_deleted(api: Api) -> None:
    refusal = await api.refusal(messages=two_rounds(delete("toolu_9")), betas=BETA)
    assert refusal == ("messages.4.content.1.edits.0.cache_reference: no `tool_result` of toolu_9 is in this request")


@rule("cache edits / placement: only in user messages")
async def test_an_edit_stands_in_a_user_message(api: Api) -> None:
    messages = [*two_rounds(), assistant(delete("toolu_1")), user(text(1))]
    assert "`cache_edits` blocks" in await api.refusal(messages=messages, betas=BETA)


@pytest.mark.parametrize("edit", [{"type": "replace", "cache_reference": "toolu_1"}, {"type": "delete"}])
@rule("cache edits / edits: an edit is a deletion with a reference")
async def test_a_malformed_edit_is_refused(api: Api, edit: dict[str, str]) -> None:
    block = {"type": "cache_edits", "edits": [edit]}
    assert (await api.refusal(messages=two_rounds(block), betas=BETA)).startswith("messages.4.content.1.edits.0.")


@rule("cache edits / breakpoints: an edit takes none")
async def test_an_edit_takes_no_breakpoint(api: Api) -> None:
    refusal = await api.refusal(messages=two_rounds(marked(delete("toolu_1"))), betas=BETA)
    assert refusal == "messages.4.content.1.cache_edits.cache_control: Extra inputs are not permitted"

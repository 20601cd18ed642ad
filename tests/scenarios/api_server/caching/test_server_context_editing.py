from typing import Any

import pytest

from coterie.scenarios.api_server.caching.context_editing import BETA, PLACEHOLDER, EditedConversation, apply_edits
from coterie.scenarios.api_server.caching.prompt_digest import build_prompt_digest
from coterie.scenarios.api_server.request.api_request import ApiRequest
from coterie.scenarios.api_server.request.errors import ApiError
from tests.scenarios.api_server.request_samples import (
    assistant,
    make_call,
    sized,
    text,
    tool,
    tool_result,
    tool_use,
    user,
)

THINKING = "clear_thinking_20251015"
TOOL_USES = "clear_tool_uses_20250919"
ALWAYS = {"type": "tool_uses", "value": 0}


def edited_call(*edits: Any, messages: list[dict[str, Any]], **params: Any) -> ApiRequest:
    return make_call(*messages, betas=[BETA], context_management={"edits": list(edits)}, **params)


def rounds(count: int, *, tokens: int = 100, name: str = "Read") -> list[dict[str, Any]]:
    """A question and *count* tool calls, each answered with *tokens* of text."""
    messages = [user(text("q"))]
    for number in range(count):
        messages.append(assistant(tool_use(f"toolu_{number}", name, path="a" * 90)))
        messages.append(user(tool_result(f"toolu_{number}", "x" * 4 * tokens)))
    return messages


def clear_tools(**fields: Any) -> dict[str, Any]:
    return {"type": TOOL_USES, "trigger": ALWAYS, **fields}


def cleared_ids(edited: EditedConversation) -> list[str]:
    blocks = (block for message in edited.messages for block in message.content)
    return [
        block["tool_use_id"]
        for block in blocks
        if block["type"] == "tool_result" and block["content"] == [{"type": "text", "text": PLACEHOLDER}]
    ]


def test_a_request_without_edits_is_as_it_was() -> None:
    call = make_call(*rounds(5))
    edited = apply_edits(call)
    assert (edited.messages, edited.applied) == (call.messages, ())
    assert edited.original_tokens == edited.edited_tokens == build_prompt_digest(call).total


@pytest.mark.parametrize(("keep", "cleared"), [(0, 5), (1, 4), (5, 0), (9, 0)])
def test_keep_says_how_many_stay(keep: int, cleared: int) -> None:
    edit = clear_tools(keep={"type": "tool_uses", "value": keep})
    assert len(cleared_ids(apply_edits(edited_call(edit, messages=rounds(5))))) == cleared


def test_nothing_is_cleared_before_the_trigger_is_passed() -> None:
    call = edited_call(messages=rounds(5))
    total = apply_edits(call).original_tokens
    for trigger, applied in [
        ({"type": "input_tokens", "value": total}, 0),
        ({"type": "input_tokens", "value": total - 1}, 1),
        ({"type": "tool_uses", "value": 5}, 0),
        ({"type": "tool_uses", "value": 4}, 1),
    ]:
        edit = {"type": TOOL_USES, "trigger": trigger}
        assert len(apply_edits(edited_call(edit, messages=rounds(5))).applied) == applied


def test_the_trigger_counts_tools_and_system_but_no_deferred_tool() -> None:
    extra = {"tools": [tool("A"), tool("B", defer_loading=True)], "system": [sized(7)]}
    call = edited_call(messages=rounds(1), **extra)
    assert apply_edits(call).original_tokens == build_prompt_digest(call).total


def test_a_result_smaller_than_its_placeholder_stays() -> None:
    edited = apply_edits(edited_call(clear_tools(), messages=rounds(5, tokens=1)))
    assert (cleared_ids(edited), edited.applied) == ([], ())


def test_a_call_that_waits_for_its_result_is_neither_counted_nor_cleared() -> None:
    messages = [*rounds(4), assistant(tool_use("open", path="a" * 90))]
    edited = apply_edits(edited_call(clear_tools(clear_tool_inputs=True), messages=messages))
    assert cleared_ids(edited) == ["toolu_0"]


EDITS = "context_management.edits"


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([{"type": "forget_all"}], f"{EDITS}.0.type: Invalid value 'forget_all'"),
        ([{}], f"{EDITS}.0: Object missing required field `type`"),
        (["all"], f"{EDITS}.0: Expected `object`, got `str`"),
        ([clear_tools(), {"type": THINKING}], f"{EDITS}: `{THINKING}` must be the first edit"),
        ([clear_tools(), clear_tools()], f"{EDITS}: each type of edit may be given once"),
        (
            [{"type": THINKING, "keep": {"type": "thinking_turns", "value": 0}}],
            f"{EDITS}.0.keep.value: Expected `int` >= 1",
        ),
        ([clear_tools(trigger={"type": "days", "value": 1})], f"{EDITS}.0.trigger.type: Invalid value 'days'"),
        ([clear_tools(keep={"type": "tool_uses", "value": -1})], f"{EDITS}.0.keep.value: Expected `int` >= 0"),
        ([clear_tools(keeps=1)], f"{EDITS}.0: Object contains unknown field `keeps`"),
        ("all", f"{EDITS}: Input should be a valid list"),
    ],
)
def test_an_edit_that_is_not_as_documented_is_refused(edits: Any, message: str) -> None:
    call = make_call(betas=[BETA], context_management={"edits": edits})
    with pytest.raises(ApiError) as refusal:
        build_prompt_digest(call)
    assert (refusal.value.status, refusal.value.message) == (400, message)

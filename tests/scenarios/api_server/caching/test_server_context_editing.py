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
    thinking,
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


def test_the_oldest_tool_results_are_cleared_and_three_are_kept() -> None:
    edited = apply_edits(edited_call(clear_tools(), messages=rounds(5)))
    assert cleared_ids(edited) == ["toolu_0", "toolu_1"]
    assert edited.applied == (
        {
            "type": TOOL_USES,
            "cleared_tool_uses": 2,
            "cleared_input_tokens": edited.original_tokens - edited.edited_tokens,
        },
    )
    assert edited.edited_tokens < edited.original_tokens


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


def test_the_default_trigger_is_a_hundred_thousand_tokens() -> None:
    small = apply_edits(edited_call({"type": TOOL_USES}, messages=rounds(5, tokens=15_000)))
    large = apply_edits(edited_call({"type": TOOL_USES}, messages=rounds(5, tokens=21_000)))
    assert (small.applied, len(large.applied)) == ((), 1)


def test_the_trigger_counts_tools_and_system_but_no_deferred_tool() -> None:
    extra = {"tools": [tool("A"), tool("B", defer_loading=True)], "system": [sized(7)]}
    call = edited_call(messages=rounds(1), **extra)
    assert apply_edits(call).original_tokens == build_prompt_digest(call).total


def test_an_edit_that_cannot_clear_enough_is_not_applied() -> None:
    saved = apply_edits(edited_call(clear_tools(), messages=rounds(5))).applied[0]["cleared_input_tokens"]
    for least, applied in [(saved, 1), (saved + 1, 0)]:
        edit = clear_tools(clear_at_least={"type": "input_tokens", "value": least})
        assert len(apply_edits(edited_call(edit, messages=rounds(5))).applied) == applied


def test_excluded_tools_keep_their_results() -> None:
    messages = rounds(2, name="web_search") + rounds(5)[1:]
    for number, message in enumerate(messages[1:5]):
        key = "id" if message["role"] == "assistant" else "tool_use_id"
        message["content"][0][key] = f"web_{number // 2}"
    edited = apply_edits(edited_call(clear_tools(exclude_tools=["web_search"]), messages=messages))
    assert cleared_ids(edited) == ["toolu_0", "toolu_1"]


@pytest.mark.parametrize(("setting", "emptied"), [(True, 2), (False, 0), (None, 0), (["Read"], 2), (["Bash"], 0)])
def test_tool_inputs_are_cleared_on_request(setting: Any, emptied: int) -> None:
    edited = apply_edits(edited_call(clear_tools(clear_tool_inputs=setting), messages=rounds(5)))
    blocks = [block for message in edited.messages for block in message.content]
    assert sum(block["type"] == "tool_use" and block["input"] == {} for block in blocks) == emptied
    assert edited.applied[0]["cleared_tool_uses"] == 2


def test_a_result_smaller_than_its_placeholder_stays() -> None:
    edited = apply_edits(edited_call(clear_tools(), messages=rounds(5, tokens=1)))
    assert (cleared_ids(edited), edited.applied) == ([], ())


def test_a_call_that_waits_for_its_result_is_neither_counted_nor_cleared() -> None:
    messages = [*rounds(4), assistant(tool_use("open", path="a" * 90))]
    edited = apply_edits(edited_call(clear_tools(clear_tool_inputs=True), messages=messages))
    assert cleared_ids(edited) == ["toolu_0"]


def thoughtful_turns(count: int) -> list[dict[str, Any]]:
    """Turns of one tool loop each; both assistant messages of a turn think."""
    messages = []
    for number in range(count):
        messages += [
            user(text(f"q{number}")),
            assistant(thinking(f"{number}" * 40), tool_use(f"toolu_{number}")),
            user(tool_result(f"toolu_{number}")),
            assistant({"type": "redacted_thinking", "data": f"{number}"}, text("a")),
        ]
    return messages


def thoughts(edited: EditedConversation) -> int:
    kinds = [block["type"] for message in edited.messages for block in message.content]
    return kinds.count("thinking") + kinds.count("redacted_thinking")


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        ({"type": "thinking_turns", "value": 2}, 4),
        ({"type": "thinking_turns", "value": 9}, 6),
        ({"type": "all"}, 6),
        ("all", 6),
        (None, 2),
    ],
)
def test_thinking_is_kept_by_turns(keep: Any, left: int) -> None:
    edit = {"type": THINKING} if keep is None else {"type": THINKING, "keep": keep}
    edited = apply_edits(edited_call(edit, messages=thoughtful_turns(3)))
    assert thoughts(edited) == left
    cleared = 3 - left // 2
    saved = edited.original_tokens - edited.edited_tokens
    report = {"type": THINKING, "cleared_thinking_turns": cleared, "cleared_input_tokens": saved}
    assert edited.applied == ((report,) if cleared else ())


def test_both_edits_are_applied_one_after_the_other() -> None:
    call = edited_call({"type": THINKING}, clear_tools(), messages=thoughtful_turns(2) + rounds(5)[1:])
    edited = apply_edits(call)
    assert [edit["type"] for edit in edited.applied] == [THINKING, TOOL_USES]
    prompt = build_prompt_digest(call)
    assert (prompt.total, prompt.original_total) == (edited.edited_tokens, edited.original_tokens)
    assert prompt.applied_edits == edited.applied


def test_clearing_breaks_the_cache_from_the_first_block_that_changed() -> None:
    plain = build_prompt_digest(make_call(*rounds(5)))
    edited = build_prompt_digest(edited_call(clear_tools(), messages=rounds(5)))
    assert plain.digests[:2] == edited.digests[:2]
    assert not set(plain.digests[2:]) & set(edited.digests)


def test_an_older_model_keeps_all_thinking_when_the_request_says_so() -> None:
    messages = [*thoughtful_turns(2), user(text("next"))]
    plain = build_prompt_digest(make_call(*messages, model="claude-haiku-4-5"))
    kept = build_prompt_digest(
        edited_call({"type": THINKING, "keep": "all"}, messages=messages, model="claude-haiku-4-5")
    )
    assert len(kept.blocks) == len(plain.blocks) + 4


EDITS = "context_management.edits"


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([{"type": "forget_all"}], f"{EDITS}.0.type: Invalid value 'forget_all'"),
        ([{}], f"{EDITS}.0: Object missing required field `type`"),
        (["all"], f"{EDITS}.0: Expected `object`, got `str`"),
        (
            [clear_tools(), {"type": THINKING}],
            f"{EDITS}: `{THINKING}` must be the first edit",
        ),
        ([clear_tools(), clear_tools()], f"{EDITS}: each type of edit may be given once"),
        (
            [{"type": THINKING, "keep": {"type": "thinking_turns", "value": 0}}],
            f"{EDITS}.0.keep.value: Expected `int` >= 1",
        ),
        ([clear_tools(trigger={"type": "days", "value": 1})], f"{EDITS}.0.trigger.type: Invalid value 'days'"),
        (
            [clear_tools(keep={"type": "tool_uses", "value": -1})],
            f"{EDITS}.0.keep.value: Expected `int` >= 0",
        ),
        ([clear_tools(keeps=1)], f"{EDITS}.0: Object contains unknown field `keeps`"),
        ("all", f"{EDITS}: Input should be a valid list"),
    ],
)
def test_an_edit_that_is_not_as_documented_is_refused(edits: Any, message: str) -> None:
    call = make_call(betas=[BETA], context_management={"edits": edits})
    with pytest.raises(ApiError) as refusal:
        build_prompt_digest(call)
    assert (refusal.value.status, refusal.value.message) == (400, message)


def test_without_its_beta_the_parameter_is_unknown() -> None:
    with pytest.raises(ApiError, match="context_management: Extra inputs are not permitted"):
        build_prompt_digest(make_call(context_management={"edits": []}))

from typing import Any

import pytest

from coterie.agents.loop.model.catalog import load_models
from coterie.scenarios.api_server.caching.breakpoints import find_breakpoints
from coterie.scenarios.api_server.caching.prompt_cache import CacheResult, PromptCache, usage_json
from coterie.scenarios.api_server.caching.prompt_digest import PromptDigest, build_prompt_digest
from coterie.scenarios.api_server.request.api_request import ApiRequest, Block
from coterie.scenarios.api_server.request.errors import ApiError
from tests.scenarios.api_server.request_samples import (
    EPHEMERAL,
    assistant,
    make_call,
    sized,
    text,
    tool_result,
    tool_use,
    user,
)

BETA = load_models().betas["cache_edits"]
RESULT = 104
"""Tokens of one tool result below."""


def delete(*references: str) -> Block:
    edits = [{"type": "delete", "cache_reference": reference} for reference in references]
    return {"type": "cache_edits", "edits": edits}


def conversation(*last: Block) -> list[dict[str, Any]]:
    """Two tool rounds, and a user message of *last* behind them."""
    return [
        user(sized(10)),
        assistant(tool_use("toolu_a")),
        user(tool_result("toolu_a", "x" * 400)),
        assistant(tool_use("toolu_b")),
        user(tool_result("toolu_b", "y" * 400), *last),
    ]


def edited(*messages: dict[str, Any], **params: Any) -> ApiRequest:
    return make_call(*messages, betas=[BETA], **params)


def prompt_of(call: ApiRequest) -> PromptDigest:
    return build_prompt_digest(call, cache_edits_beta=BETA)


def ask(cache: PromptCache, call: ApiRequest) -> CacheResult:
    prompt = prompt_of(call)
    verdict = cache.look_up(prompt, find_breakpoints(call, prompt), minimum=1, now=0.0)
    cache.publish(verdict)
    return verdict


def test_a_deleted_result_counts_nothing_and_stays_in_the_chain() -> None:
    plain = prompt_of(edited(*conversation()))
    after = prompt_of(edited(*conversation(delete("toolu_a"))))
    assert after.digests[:-1] == plain.digests
    assert after.total == plain.total - RESULT
    assert (after.tokens_of(2), after.tokens_of(5)) == (0, 0)
    assert after.deletions == ((5, RESULT),)


def test_a_cached_prefix_is_still_found_and_its_deleted_part_is_not_billed() -> None:
    cache = PromptCache()
    before = ask(cache, edited(*conversation(), cache_control=EPHEMERAL))
    after = ask(cache, edited(*conversation(delete("toolu_a"), text("go on")), cache_control=EPHEMERAL))
    assert after.hit == 4
    assert after.read == before.write_5m - RESULT
    assert (after.write_5m, after.uncached, after.deleted) == (2, 0, RESULT)


def test_an_edit_sent_again_in_place_deletes_nothing_new() -> None:
    cache = PromptCache()
    messages = conversation(delete("toolu_a"), text("go on"))
    first = ask(cache, edited(*messages, cache_control=EPHEMERAL))
    messages += [assistant(text("ok")), user(text("more"))]
    second = ask(cache, edited(*messages, cache_control=EPHEMERAL))
    assert (first.deleted, second.deleted) == (RESULT, 0)
    assert second.read == first.write_5m


def test_a_second_deletion_of_the_same_result_has_no_effect() -> None:
    prompt = prompt_of(edited(*conversation(delete("toolu_a", "toolu_b"), delete("toolu_a"))))
    assert prompt.deletions == ((5, 2 * RESULT), (6, 0))


def test_usage_names_the_deleted_tokens_only_when_edits_were_used() -> None:
    with_edit = ask(PromptCache(), edited(*conversation(delete("toolu_a"))))
    without = ask(PromptCache(), edited(*conversation()))
    assert usage_json(with_edit, 1)["cache_deleted_input_tokens"] == RESULT
    assert "cache_deleted_input_tokens" not in usage_json(without, 1)


def test_an_edit_costs_no_step_of_the_lookback_and_splits_no_run() -> None:
    results = user(tool_result("toolu_a"), delete("toolu_a"), tool_result("toolu_b"))
    prompt = prompt_of(edited(user(text()), assistant(tool_use("toolu_a"), tool_use("toolu_b")), results))
    assert list(prompt.runs) == [0, 1, 1, 2, 2, 2]


def test_automatic_caching_does_not_mark_an_edit() -> None:
    call = edited(*conversation(delete("toolu_a")), cache_control=EPHEMERAL)
    assert [marker.index for marker in find_breakpoints(call, prompt_of(call))] == [4]


def test_an_edit_cannot_carry_a_marker() -> None:
    call = edited(*conversation({**delete("toolu_a"), "cache_control": EPHEMERAL}))
    with pytest.raises(ApiError) as refusal:
        find_breakpoints(call, prompt_of(call))
    assert refusal.value.message == ("messages.4.content.1.cache_edits.cache_control: Extra inputs are not permitted")


PATH = "messages.4.content.1"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (delete("toolu_z"), f"{PATH}.edits.0.cache_reference: no `tool_result` of toolu_z is in this request"),
        ({"type": "cache_edits"}, f"{PATH}.edits: Input should be a list of at least one edit"),
        (delete(), f"{PATH}.edits: Input should be a list of at least one edit"),
        ({"type": "cache_edits", "edits": ["x"]}, f"{PATH}.edits.0: Input should be a valid dictionary"),
        (
            {"type": "cache_edits", "edits": [{"type": "insert", "cache_reference": "toolu_a"}]},
            f"{PATH}.edits.0.type: Input should be 'delete'",
        ),
        (
            {"type": "cache_edits", "edits": [{"type": "delete"}]},
            f"{PATH}.edits.0.cache_reference: Input should be a valid string",
        ),
        (
            {"type": "cache_edits", "edits": [{"type": "delete", "cache_reference": "toolu_a", "why": 1}]},
            f"{PATH}.edits.0.why: Extra inputs are not permitted",
        ),
    ],
)
def test_a_malformed_edit_is_refused_with_its_path(block: Block, message: str) -> None:
    with pytest.raises(ApiError) as refusal:
        prompt_of(edited(*conversation(block)))
    assert (refusal.value.status, refusal.value.message) == (400, message)


def test_a_result_that_stands_after_the_edit_cannot_be_deleted() -> None:
    messages = conversation()
    messages[2]["content"].append(delete("toolu_b"))
    with pytest.raises(ApiError) as refusal:
        prompt_of(edited(*messages))
    assert refusal.value.message == (
        "messages.2.content.1.edits.0.cache_reference: the `tool_result` of toolu_b is after this block"
    )


def test_an_edit_belongs_in_a_user_message() -> None:
    with pytest.raises(ApiError, match="only permitted in user messages"):
        prompt_of(edited(*conversation(), assistant(delete("toolu_a"))))


def test_without_the_beta_an_edit_is_an_unknown_block() -> None:
    call = make_call(*conversation(delete("toolu_a")))
    for beta in (BETA, None):
        with pytest.raises(ApiError, match=r"messages\.4\.content\.1: Input tag 'cache_edits'"):
            build_prompt_digest(call, cache_edits_beta=beta)

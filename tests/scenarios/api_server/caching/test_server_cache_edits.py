from typing import Any

import pytest

from coterie.agents.loop.model.catalog import load_models
from coterie.scenarios.api_server.caching.prompt_digest import PromptDigest, build_prompt_digest
from coterie.scenarios.api_server.request.api_request import ApiRequest, Block
from coterie.scenarios.api_server.request.errors import ApiError
from tests.scenarios.api_server.request_samples import (
    assistant,
    make_call,
    sized,
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


def test_second_deletion_of_the_same_result_has_no_effect() -> None:
    prompt = prompt_of(edited(*conversation(delete("toolu_a", "toolu_b"), delete("toolu_a"))))
    assert prompt.deletions == ((5, 2 * RESULT), (6, 0))


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


def test_without_the_beta_an_edit_is_an_unknown_block() -> None:
    call = make_call(*conversation(delete("toolu_a")))
    for beta in (BETA, None):
        with pytest.raises(ApiError, match=r"messages\.4\.content\.1: Input tag 'cache_edits'"):
            build_prompt_digest(call, cache_edits_beta=beta)

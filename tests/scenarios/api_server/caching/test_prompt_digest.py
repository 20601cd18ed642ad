import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.scenarios.api_server.caching.prompt_digest import build_prompt_digest
from coterie.scenarios.api_server.caching.token_count import count_block, count_blocks
from coterie.scenarios.api_server.request.api_request import ApiRequest
from tests.agents.tools.files.pdf_files import pdf
from tests.examples import examples
from tests.scenarios.api_server.request_samples import (
    EPHEMERAL,
    assistant,
    make_call,
    sized,
    text,
    thinking,
    tool,
    tool_result,
    user,
)

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PDF: dict[str, Any] = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
}
OLD_MODEL = "claude-haiku-4-5"

odd_values: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, 7, 1.5, "", "é", [], {}, {"type": []}, ["a", None]),
        *({"type": "text", "data": 3}, {"type": "content", "content": [text("a"), "b"]}, [{"type": "image"}, 5]),
    ]
)
block_types: st.SearchStrategy[Any] = st.sampled_from(
    ["text", "thinking", "image", "document", "search_result", "tool_use", "tool_result", "new", [], None, 7]
)
fields = st.sampled_from(["text", "thinking", "content", "input", "name", "source", "tool_use_id", "citations"])
any_blocks = st.builds(
    lambda kind, fields: {"type": kind, **fields}, block_types, st.dictionaries(fields, odd_values, max_size=3)
)


@pytest.mark.parametrize(
    ("block", "tokens"),
    [
        (text("12345678"), 2),
        (text("123456789"), 3),
        (text(""), 1),
        (text("é" * 4), 2),
        (thinking("1234"), 1),
        (IMAGE, 1_600),
        (PDF, 2_000),
        ({**PDF, "source": {**PDF["source"], "data": base64.b64encode(pdf(3)).decode()}}, 6_000),
        ({**PDF, "source": {**PDF["source"], "data": "abc"}}, 2_000),
        ({"type": "document", "source": {"type": "url", "url": "http://x/y.pdf"}}, 2_000),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x" * 40}}, 10),
        ({"type": "document", "source": {"type": "content", "content": [text("x" * 40), IMAGE]}}, 1_610),
        ({"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"a": 1}}, 4 + 1 + 3),
        (tool_result("toolu_1", "x" * 40), 4 + 10),
        (tool_result("toolu_1", [text("x" * 40), IMAGE]), 4 + 10 + 1_600),
        ({"type": "tool_result", "tool_use_id": "toolu_1"}, 4),
        ({"name": "a", "input_schema": {}}, 10),
        ({"type": "later", "x": 1}, 8),
    ],
)
def test_a_block_counts_by_its_kind(block: dict[str, Any], tokens: int) -> None:
    assert count_block(block) == tokens
    assert count_block({**block, "cache_control": EPHEMERAL}) == tokens


@examples(60)
@given(st.lists(any_blocks, max_size=4))
def test_any_json_is_counted_and_the_count_is_additive(blocks: list[dict[str, Any]]) -> None:
    assert all(count_block(block) >= 0 for block in blocks)
    assert count_blocks(blocks) == sum(count_blocks([block]) for block in blocks)


def test_positions_run_from_tools_over_system_to_messages() -> None:
    prompt = build_prompt_digest(
        make_call(user(sized(3), sized(4)), assistant(sized(5)), tools=[tool()], system=[sized(2)])
    )
    assert [block.get("name", "") for block in prompt.blocks] == ["Read", "", "", "", ""]
    assert (prompt.system_start, prompt.messages_start) == (1, 2)
    assert [prompt.tokens_at(index) - prompt.tokens_at(index - 1) for index in range(1, 5)] == [2, 3, 4, 5]
    assert prompt.total == prompt.tokens_at(0) + 14


def test_a_prompt_that_grows_keeps_the_digests_it_had() -> None:
    first = build_prompt_digest(make_call(user(text("a"))))
    second = build_prompt_digest(make_call(user(text("a")), assistant(text("b")), user(text("c"))))
    assert second.digests[:1] == first.digests
    assert len(set(second.digests)) == 3


def test_message_boundaries_and_roles_are_part_of_the_cache_key() -> None:
    calls = [
        make_call(user(text("a"), text("b"))),
        make_call(user(text("a")), user(text("b"))),
        make_call(user(text("a")), assistant(text("b"))),
        make_call(user(text("a")), {"role": "system", "content": "b"}),
    ]
    assert len({build_prompt_digest(call).digests[-1] for call in calls}) == len(calls)


def _full_call(**changes: Any) -> ApiRequest:
    request: dict[str, Any] = {"tools": [tool("A"), tool("B")], "system": [text("s")], **changes}
    return make_call(*request.pop("messages", [user(text("a"))]), **request)


def test_thinking_that_is_always_on_is_adaptive_when_nothing_is_said() -> None:
    plain = _full_call(model="claude-opus-5-5")
    explicit = _full_call(model="claude-opus-5-5", thinking={"type": "adaptive"}, output_config={"effort": "medium"})
    assert build_prompt_digest(plain).digests == build_prompt_digest(explicit).digests


roles = st.sampled_from(["user", "assistant", "system"])


@examples(50)
@given(
    st.lists(
        st.builds(
            lambda role, blocks: {"role": role, "content": blocks},
            roles,
            st.lists(any_blocks.filter(lambda block: isinstance(block["type"], str)), max_size=3),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["claude-opus-5", OLD_MODEL]),
)
def test_any_request_that_parses_has_a_prompt(messages: list[dict[str, Any]], model: str) -> None:
    prompt = build_prompt_digest(make_call(*messages, model=model))
    lengths = {len(prompt.blocks), len(prompt.digests), len(prompt.cumulative), len(prompt.runs)}
    assert len(lengths) == 1
    assert list(prompt.cumulative) == sorted(prompt.cumulative)
    assert len(set(prompt.digests)) == len(prompt.digests)

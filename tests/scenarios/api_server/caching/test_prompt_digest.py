import base64
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.agents.loop.model.catalog import Section
from coterie.scenarios.api_server.caching.prompt_digest import PromptDigest, build_prompt_digest
from coterie.scenarios.api_server.caching.token_count import count_block, count_blocks
from coterie.scenarios.api_server.request.api_request import ApiRequest
from tests.agents.tools.files.pdf_files import pdf
from tests.scenarios.api_server.request_samples import (
    EPHEMERAL,
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


@settings(max_examples=60, deadline=None)
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
    assert [prompt.tokens_of(index) for index in range(1, 5)] == [2, 3, 4, 5]
    assert prompt.total == prompt.tokens_of(0) + 14


def test_a_prompt_that_grows_keeps_the_digests_it_had() -> None:
    first = build_prompt_digest(make_call(user(text("a"))))
    second = build_prompt_digest(make_call(user(text("a")), assistant(text("b")), user(text("c"))))
    assert second.digests[:1] == first.digests
    assert len(set(second.digests)) == 3


def test_string_content_equals_one_text_block_and_a_marker_is_no_part_of_the_key() -> None:
    plain = build_prompt_digest(make_call({"role": "user", "content": "a"}, system="s"))
    marked = build_prompt_digest(
        make_call(user(text("a", cache_control=EPHEMERAL)), system=[text("s", cache_control=EPHEMERAL)])
    )
    assert plain.digests == marked.digests


def test_key_order_inside_a_block_is_part_of_the_key() -> None:
    one = make_call(assistant({"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1, "b": 2}}))
    other = make_call(assistant({"type": "tool_use", "id": "t", "name": "n", "input": {"b": 2, "a": 1}}))
    assert build_prompt_digest(one).digests != build_prompt_digest(other).digests


def test_where_a_message_begins_and_whose_it_is_are_part_of_the_key() -> None:
    calls = [
        make_call(user(text("a"), text("b"))),
        make_call(user(text("a")), user(text("b"))),
        make_call(user(text("a")), assistant(text("b"))),
        make_call(user(text("a")), {"role": "system", "content": "b"}),
    ]
    assert len({build_prompt_digest(call).digests[-1] for call in calls}) == len(calls)


def test_a_run_of_tool_blocks_in_one_message_is_one_step() -> None:
    prompt = build_prompt_digest(
        make_call(
            user(text()),
            assistant(text(), tool_use("1"), tool_use("2")),
            user(tool_result("1"), tool_result("2"), text()),
            assistant(tool_use("3")),
            user(tool_result("3")),
            user(tool_result("3")),
        )
    )
    assert list(prompt.runs) == [0, 1, 2, 2, 3, 3, 4, 5, 6, 7]


def _kept(prompt: PromptDigest, other: PromptDigest) -> str:
    """The sections whose cache survives from one prompt to the other, read at each section's last position."""
    ends = {
        "tools": prompt.system_start - 1,
        "system": prompt.messages_start - 1,
        "messages": len(prompt.blocks) - 1,
    }
    return " ".join(name for name, end in ends.items() if prompt.digests[end] in other.digests)


def _full_call(**changes: Any) -> ApiRequest:
    request: dict[str, Any] = {"tools": [tool("A"), tool("B")], "system": [text("s")], **changes}
    return make_call(*request.pop("messages", [user(text("a"))]), **request)


WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"tools": [tool("B"), tool("A")]}, ""),
        ({"tools": [tool("A")]}, ""),
        ({"tools": [tool("A"), tool("B", description="new")]}, ""),
        ({"tools": [WEB_SEARCH, tool("A"), tool("B")]}, "tools"),
        ({"tools": [tool("A"), tool("B"), {"type": "web_fetch_20250910", "name": "web_fetch"}]}, "tools"),
        ({"messages": [user(text("a"), {**PDF, "citations": {"enabled": True}})]}, "tools"),
        ({"speed": "fast"}, "tools"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "tools"),
        ({"system": [text("t")]}, "tools"),
        ({"tool_choice": {"type": "any"}}, "tools system"),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, "tools system"),
        ({"messages": [user(text("a"), IMAGE)]}, "tools system"),
        ({"messages": [user(text("a"), tool_result("1", [IMAGE]))]}, "tools system"),
        ({"thinking": {"type": "adaptive"}}, "tools system"),
        ({"output_config": {"effort": "low"}}, "tools system"),
        ({"model": "claude-opus-4-8"}, ""),
        ({"key": "another"}, ""),
        ({"messages": [user(text("a"), PDF)]}, "tools system messages"),
    ],
)
def test_a_change_invalidates_what_the_table_says(change: dict[str, Any], kept: str) -> None:
    assert _kept(build_prompt_digest(_full_call()), build_prompt_digest(_full_call(**change))) == kept


@pytest.mark.parametrize(
    "default",
    [
        {"tool_choice": {"type": "auto"}},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": False}},
        {"output_config": {"effort": "high"}},
        {"thinking": {"type": "disabled"}},
        {"speed": "standard"},
        {"tools": [tool("A"), tool("B"), tool("C", defer_loading=True)]},
    ],
)
def test_a_default_said_aloud_changes_nothing(default: dict[str, Any]) -> None:
    plain, explicit = build_prompt_digest(_full_call()), build_prompt_digest(_full_call(**default))
    assert (plain.digests, plain.total) == (explicit.digests, explicit.total)


def test_thinking_that_is_always_on_is_adaptive_when_nothing_is_said() -> None:
    plain = _full_call(model="claude-opus-5-5")
    explicit = _full_call(model="claude-opus-5-5", thinking={"type": "adaptive"}, output_config={"effort": "medium"})
    assert build_prompt_digest(plain).digests == build_prompt_digest(explicit).digests


@pytest.mark.parametrize(("section", "kept"), [("tools", ""), ("system", "tools"), ("messages", "tools system")])
def test_a_model_may_lose_more_when_thinking_changes(section: Section, kept: str) -> None:
    before, after = _full_call(), _full_call(thinking={"type": "adaptive"})
    model = attrs.evolve(before.model, thinking_invalidates=section)
    before, after = attrs.evolve(before, model=model), attrs.evolve(after, model=model)
    assert _kept(build_prompt_digest(before), build_prompt_digest(after)) == kept


def _turns() -> list[dict[str, Any]]:
    return [
        user(text("q")),
        assistant(thinking("old"), tool_use("1")),
        user(tool_result("1")),
        assistant(thinking("older"), text("a")),
        user(text("next")),
        assistant(thinking("new"), tool_use("2")),
        user(tool_result("2")),
    ]


def test_an_older_model_forgets_the_thinking_of_earlier_turns() -> None:
    prompt = build_prompt_digest(make_call(*_turns(), model=OLD_MODEL))
    assert [block["thinking"] for block in prompt.blocks if block["type"] == "thinking"] == ["new"]
    assert prompt.total == count_blocks(prompt.blocks)


def test_a_newer_model_keeps_all_thinking() -> None:
    prompt = build_prompt_digest(make_call(*_turns()))
    assert sum(block["type"] == "thinking" for block in prompt.blocks) == 3


def test_tool_results_alone_do_not_make_an_older_model_forget() -> None:
    turn = _turns()[:3]
    prompt = build_prompt_digest(make_call(*turn, model=OLD_MODEL))
    assert any(block["type"] == "thinking" for block in prompt.blocks)


def test_an_older_model_loses_its_cache_at_the_first_thinking_when_a_turn_begins() -> None:
    before = build_prompt_digest(make_call(*_turns()[:3], model=OLD_MODEL))
    after = build_prompt_digest(make_call(*_turns()[:5], model=OLD_MODEL))
    assert set(before.digests) & set(after.digests) == set(before.digests[:1])


roles = st.sampled_from(["user", "assistant", "system"])


@settings(max_examples=50, deadline=None)
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

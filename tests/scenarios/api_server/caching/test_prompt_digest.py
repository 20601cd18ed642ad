import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.scenarios.api_server.caching.breakpoints import find_breakpoints
from coterie.scenarios.api_server.caching.cache_diagnostics import CacheDiagnoser
from coterie.scenarios.api_server.caching.prompt_cache import CacheResult, PromptCache
from coterie.scenarios.api_server.caching.prompt_digest import build_prompt_digest
from coterie.scenarios.api_server.caching.token_count import count_block, count_blocks
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
typed_blocks = any_blocks.filter(lambda block: isinstance(block["type"], str))
roles = st.sampled_from(["user", "assistant", "system"])


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
    assert [prompt.tokens_of(index) for index in range(1, 5)] == [2, 3, 4, 5]
    assert prompt.total == prompt.tokens_of(0) + 14


def test_message_boundaries_and_roles_are_part_of_the_cache_key() -> None:
    calls = [
        make_call(user(text("a"), text("b"))),
        make_call(user(text("a")), user(text("b"))),
        make_call(user(text("a")), assistant(text("b"))),
        make_call(user(text("a")), {"role": "system", "content": "b"}),
    ]
    assert len({build_prompt_digest(call).digests[-1] for call in calls}) == len(calls)


def test_thinking_that_is_always_on_is_adaptive_when_nothing_is_said() -> None:
    plain = make_call(model="claude-opus-5-5")
    explicit = make_call(model=plain.model.id, thinking={"type": "adaptive"}, output_config={"effort": "medium"})
    assert build_prompt_digest(plain).digests == build_prompt_digest(explicit).digests


@examples(50)
@given(
    st.lists(
        st.fixed_dictionaries({"role": roles, "content": st.lists(typed_blocks, max_size=3)}), min_size=1, max_size=4
    ),
    st.sampled_from(["claude-opus-5", "claude-haiku-4-5"]),
)
def test_any_request_that_parses_has_a_prompt(messages: list[dict[str, Any]], model: str) -> None:
    prompt = build_prompt_digest(make_call(*messages, model=model))
    lengths = {len(prompt.blocks), len(prompt.digests), len(prompt.cumulative), len(prompt.runs)}
    assert len(lengths) == 1
    assert list(prompt.cumulative) == sorted(prompt.cumulative)
    assert len(set(prompt.digests)) == len(prompt.digests)


def look_up(cache: PromptCache, tokens: int, *, now: float) -> CacheResult:
    call = make_call(user(sized(tokens, cache_control=EPHEMERAL)))
    prompt = build_prompt_digest(call)
    return cache.look_up(prompt, find_breakpoints(call, prompt), minimum=1, now=now)


def ask(cache: PromptCache, tokens: int, *, now: float) -> None:
    """A whole request: looked up at its start, published because its response begins."""
    cache.publish(look_up(cache, tokens, now=now))


def test_expired_entries_are_dropped() -> None:
    cache = PromptCache()
    for number in range(5):
        ask(cache, number + 1, now=float(number))
    assert len(cache) == 5
    ask(cache, 9, now=1000.0)
    assert len(cache) == 1


def test_a_full_cache_drops_what_expires_first() -> None:
    cache = PromptCache(limit=2)
    ask(cache, 1, now=0.0)
    ask(cache, 2, now=1.0)
    look_up(cache, 1, now=2.0)
    ask(cache, 3, now=3.0)
    assert [look_up(cache, tokens, now=3.0).hit for tokens in (1, 2, 3)] == [0, None, 0]
    assert len(cache) == 2


def test_least_recently_used_message_is_dropped_first_and_sooner_if_prompts_are_long() -> None:
    prompt = build_prompt_digest(make_call(user(sized(10)), tools=[tool("A"), tool("B")], system=[sized(5)]))

    def remembered(diagnoser: CacheDiagnoser, *ids: str) -> list[bool]:
        return [diagnoser.diagnose(id_, "m", prompt) is None for id_ in ids]

    few = CacheDiagnoser(messages_limit=2)
    few.remember("msg_1", "m", prompt)
    few.remember("msg_2", "m", prompt)
    few.diagnose("msg_1", "m", prompt)
    few.remember("msg_3", "m", prompt)
    assert remembered(few, "msg_1", "msg_2", "msg_3") == [True, False, True]
    short = CacheDiagnoser(positions_limit=9)
    for id_ in ("msg_0", "msg_1", "msg_2", "msg_3", "msg_3"):
        short.remember(id_, "m", prompt)
    assert remembered(short, "msg_0", "msg_1", "msg_2", "msg_3") == [False, False, True, True]

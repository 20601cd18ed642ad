"""Bounds, token counts and refusals of caching, in the words of the API; tests/conformance has the other rules."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.loop.model.catalog import load_models
from coterie.scenarios.api_server.caching.breakpoints import find_breakpoints
from coterie.scenarios.api_server.caching.cache_diagnostics import CacheDiagnoser
from coterie.scenarios.api_server.caching.context_editing import BETA, PLACEHOLDER, apply_edits
from coterie.scenarios.api_server.caching.prompt_cache import CacheResult, PromptCache
from coterie.scenarios.api_server.caching.prompt_digest import build_prompt_digest
from coterie.scenarios.api_server.caching.token_count import count_block
from coterie.scenarios.api_server.request.api_request import ApiRequest, Block
from coterie.scenarios.api_server.request.errors import ApiError
from tests.agents.tools.files.pdf_files import pdf
from tests.examples import examples
from tests.scenarios.api_server.request_samples import (
    EPHEMERAL,
    HOUR,
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

EDITS_BETA = load_models().betas["cache_edits"]
MARKED = text(cache_control=EPHEMERAL)
ORDER = (
    "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
    "Note that blocks are processed in the following order: `tools`, `system`, `messages`."
)
DEFERRED = (
    "Tool 'A' cannot have both defer_loading=true and cache_control set. "
    "Tools with defer_loading cannot use prompt caching."
)
TOO_MANY = "A maximum of 4 blocks with cache_control may be provided. Found 5."
TOP_LEVEL = "cache_control can only be set on top-level content blocks"
EMPTY = "cache_control cannot be set for empty text blocks"
EXTRA = "Extra inputs are not permitted"


def one(block: Block, **params: Any) -> ApiRequest:
    return make_call(user(block), **params)


def control(value: Any) -> ApiRequest:
    return one(text(cache_control=value))


def delete(*references: str, **fields: Any) -> Block:
    """An edit of the cache for each reference; *fields* change them."""
    edits = [{"type": "delete", "cache_reference": each, **fields} for each in references]
    return {"type": "cache_edits", "edits": edits}


def deleting(block: Block, *, place: int = 4) -> ApiRequest:
    """A request of two tool rounds, with a block behind the result that is *place* messages from the beginning."""
    rounds = [user(sized(10))]
    for id_ in ("toolu_a", "toolu_b"):
        rounds += [assistant(tool_use(id_)), user(tool_result(id_, "x" * 400))]
    rounds[place]["content"].append(block)
    return make_call(*rounds, betas=[EDITS_BETA])


def clearing(*edits: Any) -> ApiRequest:
    return make_call(betas=[BETA], context_management={"edits": list(edits)})


def keeping(kind: str, value: int, **fields: Any) -> Block:
    return {"keep": {"type": kind, "value": value}, **fields}


THINKING = "clear_thinking_20251015"
TOOLS: dict[str, Any] = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 0}}
FIRST, PATH, EDITS = "messages.0.content.0", "messages.4.content.1", "context_management.edits"

EDIT, EARLIER = f"{PATH}.edits.0", "messages.2.content.1.edits.0.cache_reference"
OTHER_TTL = "the last cacheable block already has a cache_control with ttl='5m'"
REDACTED = {"type": "redacted_thinking", "data": "x", "cache_control": EPHEMERAL}
SHORT_TOOL, LONG_TEXT = tool(cache_control=EPHEMERAL), text(cache_control=HOUR)

REFUSED = [
    (control({"type": "eternal"}), f"{FIRST}.cache_control.type: Input should be 'ephemeral'"),
    (control({"type": "ephemeral", "ttl": "2h"}), f"{FIRST}.cache_control.ttl: Input should be '5m' or '1h'"),
    (control("ephemeral"), f"{FIRST}.cache_control: Input should be a valid dictionary"),
    (one(text("", cache_control=EPHEMERAL)), f"{FIRST}.text: {EMPTY}"),
    (make_call(system=[text("", cache_control=EPHEMERAL)]), f"system.0.text: {EMPTY}"),
    (make_call(assistant(thinking(cache_control=EPHEMERAL))), f"{FIRST}.thinking.cache_control: {EXTRA}"),
    (make_call(assistant(REDACTED)), f"{FIRST}.redacted_thinking.cache_control: {EXTRA}"),
    (one(tool_result("1", [text(), MARKED])), f"{FIRST}.content.1.cache_control: {TOP_LEVEL}"),
    (make_call(tools=[tool("A", defer_loading=True, cache_control=EPHEMERAL)]), DEFERRED),
    (make_call(user(*[MARKED] * 5)), TOO_MANY),
    (make_call(user(*[MARKED] * 4, text()), cache_control=EPHEMERAL), TOO_MANY),
    (make_call(tools=[SHORT_TOOL], system=[LONG_TEXT]), f"system.0.cache_control.ttl: {ORDER}"),
    (make_call(user(MARKED, text(), LONG_TEXT)), f"messages.0.content.2.cache_control.ttl: {ORDER}"),
    (make_call(user(MARKED, text()), cache_control=HOUR), f"cache_control.ttl: {ORDER}"),
    (one(MARKED, cache_control=HOUR), f"cache_control.ttl: {OTHER_TTL}"),
    (make_call(cache_control={"type": "other"}), "cache_control.type: Input should be 'ephemeral'"),
    (deleting(delete("toolu_z")), f"{EDIT}.cache_reference: no `tool_result` of toolu_z is in this request"),
    (deleting(delete("toolu_b"), place=2), f"{EARLIER}: the `tool_result` of toolu_b must be before this block"),
    (deleting({"type": "cache_edits"}), f"{PATH}.edits: Input should be a list of at least one edit"),
    (deleting(delete()), f"{PATH}.edits: Input should be a list of at least one edit"),
    (deleting({"type": "cache_edits", "edits": ["x"]}), f"{EDIT}: Input should be a valid dictionary"),
    (deleting(delete("toolu_a", type="insert")), f"{EDIT}.type: Input should be 'delete'"),
    (deleting(delete("x", cache_reference=None)), f"{EDIT}.cache_reference: Input should be a valid string"),
    (deleting(delete("toolu_a", why=1)), f"{EDIT}.why: {EXTRA}"),
    (clearing({"type": "forget_all"}), f"{EDITS}.0.type: Invalid value 'forget_all'"),
    (clearing({}), f"{EDITS}.0: Object missing required field `type`"),
    (clearing("all"), f"{EDITS}.0: Expected `object`, got `str`"),
    (clearing(TOOLS, {"type": THINKING}), f"{EDITS}: `{THINKING}` must be the first edit"),
    (clearing(TOOLS, TOOLS), f"{EDITS}: each type of edit may be given once"),
    (clearing(keeping("thinking_turns", 0, type=THINKING)), f"{EDITS}.0.keep.value: Expected `int` >= 1"),
    (clearing({**TOOLS, "trigger": {"type": "days", "value": 1}}), f"{EDITS}.0.trigger.type: Invalid value 'days'"),
    (clearing({**TOOLS, **keeping("tool_uses", -1)}), f"{EDITS}.0.keep.value: Expected `int` >= 0"),
    (clearing({**TOOLS, "keeps": 1}), f"{EDITS}.0: Object contains unknown field `keeps`"),
    (make_call(betas=[BETA], context_management={"edits": "all"}), f"{EDITS}: Input should be a valid list"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_request_that_breaks_a_rule_of_caching_is_refused(call: ApiRequest, message: str) -> None:
    with pytest.raises(ApiError) as refusal:
        find_breakpoints(call, build_prompt_digest(call, cache_edits_beta=EDITS_BETA))
    assert (refusal.value.status, refusal.value.message) == (400, message)


def test_null_marker_is_none_and_automatic_caching_falls_back_on_the_tools() -> None:
    null = make_call(user(text("a", cache_control=None)), cache_control=None)
    assert find_breakpoints(null, build_prompt_digest(null)) == ()
    empty = make_call(user(text("")), tools=[tool()], cache_control=EPHEMERAL)
    [marker] = find_breakpoints(empty, build_prompt_digest(empty))
    assert (marker.index, marker.ttl) == (0, "5m")


def test_second_deletion_of_the_same_result_has_no_effect() -> None:
    call = deleting(delete("toolu_a", "toolu_b"))
    call.messages[-1].content[1]["edits"].append(delete("toolu_a")["edits"][0])
    assert build_prompt_digest(call, cache_edits_beta=EDITS_BETA).deletions == ((5, 2 * 104),)


def test_small_result_and_call_without_result_are_not_cleared() -> None:
    def cleared(tokens: int) -> list[str]:
        messages = [user(text("q"))]
        for number in range(4):
            messages.append(assistant(tool_use(f"toolu_{number}", path="a" * 90)))
            messages.append(user(tool_result(f"toolu_{number}", "x" * 4 * tokens)))
        messages.append(assistant(tool_use("open", path="a" * 90)))
        edits = {"edits": [{**TOOLS, "clear_tool_inputs": True}]}
        edited = apply_edits(make_call(*messages, betas=[BETA], context_management=edits))
        blocks = [block for message in edited.messages for block in message.content if block["type"] == "tool_result"]
        return [each["tool_use_id"] for each in blocks if each["content"] == [{"type": "text", "text": PLACEHOLDER}]]

    assert (cleared(100), cleared(1)) == (["toolu_0"], [])


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PDF: dict[str, Any] = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
}


ODD_VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, 7, 1.5, "", "é", [], {}, {"type": []}, ["a", None]),
        *({"type": "text", "data": 3}, {"type": "content", "content": [text("a"), "b"]}, [{"type": "image"}, 5]),
    ]
)
KINDS = ("text", "thinking", "image", "document", "search_result", "tool_use", "tool_result", "new")
FIELDS = ("text", "thinking", "content", "input", "name", "source", "tool_use_id", "citations")
BLOCKS = st.builds(
    lambda kind, fields: {"type": kind, **fields},
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(FIELDS), ODD_VALUES, max_size=3),
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.lists(BLOCKS, max_size=3)}
)


@examples(60)
@given(st.lists(MESSAGES, min_size=1, max_size=4), st.sampled_from(["claude-opus-5", "claude-haiku-4-5"]))
def test_any_request_that_parses_has_a_prompt(messages: list[dict[str, Any]], model: str) -> None:
    prompt = build_prompt_digest(make_call(*messages, model=model))
    lengths = {len(prompt.blocks), len(prompt.digests), len(prompt.cumulative), len(prompt.runs)}
    assert len(lengths) == 1
    assert list(prompt.cumulative) == sorted(prompt.cumulative)
    assert len(set(prompt.digests)) == len(prompt.digests)


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
        (tool_result("toolu_1", 12345678), 4 + 3),
        (tool_result("toolu_1", ["x" * 40]), 4 + 14),
        ({"name": "a", "input_schema": {}}, 10),
        ({"type": "later", "x": 1}, 8),
    ],
)
def test_a_block_counts_by_its_kind(block: dict[str, Any], tokens: int) -> None:
    assert count_block(block) == tokens
    assert count_block({**block, "cache_control": EPHEMERAL}) == tokens


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

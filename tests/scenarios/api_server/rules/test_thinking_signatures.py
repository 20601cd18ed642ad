import base64
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.scenarios.api_server.request.api_request import ApiRequest, Block
from coterie.scenarios.api_server.request.errors import ApiError
from coterie.scenarios.api_server.rules.thinking_signatures import ThinkingSigner
from tests.examples import examples
from tests.scenarios.api_server.request_samples import (
    EPHEMERAL,
    assistant,
    make_call,
    text,
    tool,
    tool_result,
    tool_use,
    user,
)

BOUND = "claude-opus-5-5"
UNBOUND = "claude-opus-5"
OTHER = "claude-sonnet-5-5"

INVALID = "messages.1.content.0: Invalid `signature` in `thinking` block"
ELSEWHERE = "messages.1.content.0: The block is bound to a different conversation"
MODIFIED = (
    "messages.{0}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "
    "These blocks must remain as they were in the original response."
)
HELLO = user(text("hello"))
NEXT = user(text("and then?"))
RESULTS = user(tool_result("a"))


def new_signer() -> ThinkingSigner:
    return ThinkingSigner(b"seed 7")


@pytest.fixture
def signer() -> ThinkingSigner:
    return new_signer()


def thought(signer: ThinkingSigner, call: ApiRequest, words: str = "hm", earlier: Sequence[Block] = ()) -> Block:
    return {"type": "thinking", "thinking": words, "signature": signer.sign(call, words, earlier)}


def redacted(signer: ThinkingSigner, call: ApiRequest, words: str = "hm", earlier: Sequence[Block] = ()) -> Block:
    return {"type": "redacted_thinking", "data": signer.redact(call, words, earlier)}


def refusal(signer: ThinkingSigner, call: ApiRequest) -> str | None:
    try:
        signer.check(call)
    except ApiError as error:
        return error.message if error.status == 400 else str(error)
    return None


def test_thinking_of_every_turn_is_bound_to_all_before_it(signer: ThinkingSigner) -> None:
    messages = [HELLO]
    for words in ("one", "two", "three"):
        block = thought(signer, make_call(*messages, model=BOUND), words)
        messages += [assistant(block, text(words)), NEXT]
    assert refusal(signer, make_call(*messages, model=BOUND)) is None
    messages[2] = user(text("and now?"))
    assert refusal(signer, make_call(*messages, model=BOUND)) == ELSEWHERE.replace("1", "3", 1)


def returned(block: Block, model: str = BOUND) -> ApiRequest:
    """A request that sends *block* back as the whole reply."""
    return make_call(HELLO, assistant(block), NEXT, model=model)


def test_another_spelling_and_redacted_data_are_no_signature(signer: ThinkingSigner) -> None:
    call = make_call(HELLO, model=BOUND)
    signature = signer.sign(call, "hm", ())
    assert signature.endswith("Q==")
    respelt = signature.removesuffix("Q==") + "R=="
    assert base64.b64decode(respelt) == base64.b64decode(signature)
    for forged in (respelt, signer.redact(call, "hm", ())):
        block = {"type": "thinking", "thinking": "hm", "signature": forged}
        assert refusal(signer, returned(block)) == INVALID
    expected = "messages.1.content.0: Invalid `data` in `redacted_thinking` block"
    assert refusal(signer, returned({"type": "redacted_thinking", "data": signature})) == expected


SIGNED = base64.b64decode(new_signer().sign(make_call(HELLO, model=BOUND), "hm", ()))


def _flipped(position: int, mask: int) -> str:
    return base64.b64encode(bytes(byte ^ mask * (at == position) for at, byte in enumerate(SIGNED))).decode()


@examples(80)
@given(st.text(max_size=120) | st.builds(_flipped, st.integers(0, len(SIGNED) - 1), st.integers(1, 255)))
def test_no_other_text_and_no_changed_byte_is_a_signature(forged: str) -> None:
    """Not even the bytes that name the model, which would make the block another model's and so ignored."""
    block = {"type": "thinking", "thinking": "hm", "signature": forged}
    assert refusal(new_signer(), returned(block)) == INVALID


def test_blocks_of_another_model_are_ignored_whatever_was_done_to_them(signer: ThinkingSigner) -> None:
    block = thought(signer, make_call(HELLO, model=OTHER))
    moved = make_call(user(text("elsewhere")), assistant({**block, "thinking": "?"}), NEXT, model=BOUND)
    assert refusal(signer, moved) is None


def test_text_in_the_empty_field_of_an_omitted_block_is_ignored(signer: ThinkingSigner) -> None:
    """Also if the block is part of the prefix of a later one."""
    omitted = thought(signer, make_call(HELLO, model=BOUND), "")
    begun = [HELLO, assistant(omitted, text("one")), NEXT]
    later = thought(signer, make_call(*begun, model=BOUND))
    filled = [HELLO, assistant({**omitted, "thinking": "filled in"}, text("one")), NEXT]
    assert refusal(signer, make_call(*filled, assistant(later), NEXT, model=BOUND)) is None


CHANGES: list[dict[str, Any]] = [
    {"system": "be brief"},
    {"tools": [tool("Read"), tool("Write")]},
    {"tools": [tool("Read", description="reads")]},
    {"messages": [user(text("hello!"))]},
    {"messages": [user(text("hello"), text("more"))]},
    {"messages": [{"role": "system", "content": "hello"}]},
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_block_is_bound_to_its_prefix_on_models_that_bind(signer: ThinkingSigner, change: dict[str, Any]) -> None:
    params: dict[str, Any] = {"tools": [tool("Read")], "system": "be kind"}
    for model, expected in ((BOUND, ELSEWHERE), (UNBOUND, None)):
        block = thought(signer, make_call(HELLO, model=model, **params))
        changed = {**params, **change}
        before = changed.pop("messages", [HELLO])
        assert refusal(signer, make_call(*before, assistant(block), NEXT, model=model, **changed)) == expected


EDITS = {"type": "cache_edits", "edits": [{"type": "delete", "cache_reference": "a"}]}
BOTH = [user(text("hello"), text("you"))]
SAME: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([user(text("hello", cache_control=EPHEMERAL), text("you"))], {}),
    ([user(text("hello")), user(text("you"))], {}),
    ([user(text("hello"), EDITS, text("you"))], {}),
    (BOTH, {"system": [text("be kind", cache_control=EPHEMERAL)]}),
    (BOTH, {"tools": [tool("Read", cache_control=EPHEMERAL)]}),
    (BOTH, {"tools": [tool("Read"), tool("Later", defer_loading=True)]}),
    (BOTH, {"tool_choice": {"type": "none"}, "max_tokens": 99, "metadata": {}}),
    (BOTH, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
]


@pytest.mark.parametrize(("messages", "change"), SAME)
def test_thinking_is_not_bound_to_fields_that_are_not_content(
    signer: ThinkingSigner, messages: list[dict[str, Any]], change: dict[str, Any]
) -> None:
    """Markers, cache edits, message boundaries, deferred tools and the parameters of the key header."""
    params: dict[str, Any] = {"tools": [tool("Read")], "system": "be kind"}
    block = thought(signer, make_call(*BOTH, model=BOUND, **params))
    back = make_call(*messages, assistant(block), NEXT, model=BOUND, **{**params, **change})
    assert refusal(signer, back) is None


def test_a_reply_may_come_back_with_its_fields_in_another_order(signer: ThinkingSigner) -> None:
    """Typed clients sort the fields of a block and write out those that are null."""
    said = [text("well"), tool_use("a", path="x")]
    block = thought(signer, make_call(HELLO, model=BOUND), "so", said)
    back: list[Block] = [
        {"citations": None, "text": "well", "type": "text"},
        {"input": {"path": "x"}, "caller": {"type": "direct"}, "name": "Read", "id": "a", "type": "tool_use"},
        {"signature": block["signature"], "thinking": "so", "type": "thinking"},
    ]
    assert refusal(signer, make_call(HELLO, assistant(*back), RESULTS, model=BOUND)) is None


def test_a_cache_edit_before_or_behind_thinking_does_not_unbind_it(signer: ThinkingSigner) -> None:
    begun = [HELLO, assistant(tool_use("a")), RESULTS]
    early = thought(signer, make_call(*begun, model=BOUND))
    edited = user(EDITS, text("go on"))
    late = thought(signer, make_call(*begun, assistant(early), edited, model=BOUND))
    without = user(text("go on"))
    for turn in (edited, without):
        back = make_call(*begun, assistant(early), turn, assistant(late), NEXT, model=BOUND)
        assert refusal(signer, back) is None


def in_a_loop(signer: ThinkingSigner, model: str) -> list[Block]:
    """A reply with two thinking blocks that the signer remembers by its tool call."""
    call = make_call(HELLO, model=model)
    first = thought(signer, call, "first")
    second = redacted(signer, call, "second", [first, text("well")])
    reply = [first, text("well"), second, tool_use("a")]
    signer.remember(["a"], reply)
    return reply


@pytest.mark.parametrize("model", [BOUND, UNBOUND])
@pytest.mark.parametrize(
    ("kept", "place"),
    [
        ([0, 1, 2, 3], None),
        ([0, 2, 3], None),
        ([1, 3], "1.content.0"),
        ([0, 1, 3], "1.content.0"),
        ([1, 2, 3], "1.content.1"),
        ([2, 1, 0, 3], "1.content.0"),
        ([0, 0, 1, 2, 3], "1.content.1"),
        ([0, 1, 2, 2, 3], "1.content.3"),
    ],
)
def test_in_an_open_tool_loop_all_thinking_must_come_back_in_order(
    signer: ThinkingSigner, model: str, kept: list[int], place: str | None
) -> None:
    reply = in_a_loop(signer, model)
    back = make_call(HELLO, assistant(*(reply[index] for index in kept)), RESULTS, model=model)
    if place is None and model == BOUND and kept != [0, 1, 2, 3]:
        assert refusal(signer, back) == ELSEWHERE.replace("content.0", "content.1")
    else:
        assert refusal(signer, back) == (None if place is None else MODIFIED.format(place))
    if kept == [0, 1, 2, 3]:
        changed = make_call(HELLO, assistant({**reply[0], "thinking": "changed"}, *reply[1:]), RESULTS, model=model)
        assert refusal(signer, changed) == MODIFIED.format("1.content.0")
        assert refusal(new_signer(), changed) == INVALID


def test_thinking_may_be_left_out_where_no_tool_loop_is_open(signer: ThinkingSigner) -> None:
    *_, call = in_a_loop(signer, UNBOUND)
    left_out = [HELLO, assistant(call), RESULTS]
    assert refusal(signer, make_call(*left_out, model=UNBOUND)) is not None
    assert refusal(signer, make_call(*left_out, assistant(text("done")), NEXT, model=UNBOUND)) is None
    assert refusal(signer, make_call(*left_out, model=OTHER)) is None
    assert refusal(signer, make_call(*left_out, model=UNBOUND, thinking={"type": "disabled"})) is None
    assert refusal(new_signer(), make_call(*left_out, model=UNBOUND)) is None


def test_a_reply_may_come_back_as_several_messages(signer: ThinkingSigner) -> None:
    reply = in_a_loop(signer, BOUND)
    apart = [assistant(block) for block in reply]
    assert refusal(signer, make_call(HELLO, *apart, RESULTS, model=BOUND)) is None
    assert refusal(signer, make_call(HELLO, *apart[1:], RESULTS, model=BOUND)) == MODIFIED.format("2.content.0")


def test_merged_messages_may_hold_thinking_of_a_reply_without_tools(signer: ThinkingSigner) -> None:
    earlier = thought(signer, make_call(HELLO, model=BOUND), "cut short")
    begun = [HELLO, assistant(earlier)]
    block = thought(signer, make_call(*begun, model=BOUND), "again")
    signer.remember(["a"], [block, tool_use("a")])
    back = make_call(*begun, assistant(block, tool_use("a")), RESULTS, model=BOUND)
    assert refusal(signer, back) is None


def test_only_the_latest_tool_calls_are_remembered() -> None:
    signer = ThinkingSigner(b"seed 7", remembered=2)
    call = make_call(HELLO, model=UNBOUND)
    block = thought(signer, call)
    for name in ("a", "b"):
        signer.remember([name], [block])
    missing = {
        name: make_call(HELLO, assistant(tool_use(name)), user(tool_result(name)), model=UNBOUND) for name in "abc"
    }
    assert refusal(signer, missing["a"]) is not None
    signer.remember(["c"], [block])
    assert [name for name in "abc" if refusal(signer, missing[name])] == ["a", "c"]
    signer.remember(["b"], [tool_use("b")])
    assert refusal(signer, missing["b"]) is None, "a reply without thinking takes no memory"

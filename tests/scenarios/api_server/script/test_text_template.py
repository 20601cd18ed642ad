import contextlib
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from coterie.scenarios.api_server.request.api_request import ApiCaller, ApiRequest
from coterie.scenarios.api_server.request.errors import ApiError
from coterie.scenarios.api_server.script.request_facts import RequestFacts
from coterie.scenarios.api_server.script.script_signals import ScriptSignals
from coterie.scenarios.api_server.script.text_template import SlotEmpty, check_template, fill
from tests.scenarios.api_server.request_samples import assistant, make_call, text, tool, tool_result, tool_use, user


def call(*messages: dict[str, Any]) -> ApiRequest:
    request = make_call(*messages, model="claude-opus-5-5", tools=[tool("Read"), tool("Bash")])
    return attrs.evolve(request, caller=ApiCaller(key="k", agent="lead", incarnation=2, turn=7))


PARTS = [text("second"), {"type": "image", "source": {}}, text("part")]
FACTS = RequestFacts(
    call=call(
        user(text("start"), text("well")),
        assistant(text("ok"), tool_use("old")),
        user(tool_result("old", "older")),
        assistant(tool_use("toolu_1"), tool_use("toolu_2")),
        user(tool_result("1", "first"), tool_result("2", PARTS), text("go on")),
    ),
    turn=7,
    match=("fix it", "it"),
)
NOTHING = RequestFacts(call=attrs.evolve(call(assistant(text("ok"))), caller=ApiCaller(key="k")), turn=7)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{{last_user_text}}", "go on"),
        ("{{first_user_text}}!", "start!"),
        ("{{last_tool_result}}", "second\npart"),
        ("{{tool_result.0}} {{tool_result.1}}", "first second\npart"),
        ("{{agent}}.{{incarnation}}", "lead.2"),
        ("{{purpose}} {{turn}} {{model}}", "turn 7 claude-opus-5-5"),
        ("{{match.0}}/{{match.1}}", "fix it/it"),
        ("{{tool_id.1}}", "toolu_2"),
        ("{{ turn }}", "7"),
        ("a {{open}}turn}} b", "a {{turn}} b"),
        ('{"a":{"b":{{turn}}}}', '{"a":{"b":7}}'),
        ("no slot } at { all }}", "no slot } at { all }}"),
    ],
)
def test_a_slot_is_filled_with_its_fact(text: str, filled: str) -> None:
    check_template(text, groups=1)
    assert fill(text, FACTS) == filled


def test_slot_values_are_not_expanded_again() -> None:
    facts = attrs.evolve(FACTS, call=call(user(text("{{agent}} {{nonsense}}"))))
    assert fill("<{{last_user_text}}>", facts) == "<{{agent}} {{nonsense}}>"


def test_every_string_of_a_value_is_filled_without_changing_the_template() -> None:
    value: dict[str, Any] = {"n": "{{turn}}", "list": ["{{agent}}", 3, None], "{{turn}}": {"deep": "x{{turn}}"}}
    filled = fill(value, FACTS)
    assert filled == {"n": "7", "list": ["lead", 3, None], "{{turn}}": {"deep": "x7"}}
    filled["list"].append("b")
    assert fill(value, FACTS)["list"] == ["lead", 3, None]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{tunr}}", "unknown slot {{tunr}}; did you mean 'turn'? (A literal {{ is written {{open}}.)"),
        ("{{tool_result}}", "unknown slot {{tool_result}}; did you mean 'tool_result.N'?"),
        ("{{tool_result.x}}", "unknown slot {{tool_result.x}}; did you mean 'tool_result.N'?"),
        ("{{agent.1}}", "unknown slot {{agent.1}}; did you mean 'agent'?"),
        ("{{}}", "unknown slot {{}}; expected one of agent, first_user_text,"),
        ("style={{color: 1}}", "unknown slot {{color: 1}}; expected one of"),
        ("a {{turn", "the slot '{{turn' is not closed; add }}. (A literal {{ is written {{open}}.)"),
        ("{{match.2}}", "{{match.2}} is wrong: the regular expression has only 1 groups"),
        ("{{/(/}}", "the regular expression /(/ of a slot is invalid"),
    ],
)
def test_a_slot_that_cannot_be_filled_is_refused_beforehand(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"slot|match|regular") as caught:
        check_template(text, groups=1)
    assert reason in str(caught.value)
    with pytest.raises(ValueError, match=r"\{\{match.0\}\} needs a `when` with a regular expression"):
        check_template("{{match.0}}")


@pytest.mark.parametrize(
    "slot", ["agent", "incarnation", "last_user_text", "tool_result.0", "tool_id.0", "match.1", "/never/"]
)
def test_a_fact_the_request_lacks_is_an_error_and_not_an_empty_string(slot: str) -> None:
    with pytest.raises(SlotEmpty) as caught:
        fill(f"{{{{{slot}}}}}", NOTHING)
    assert str(caught.value) == f"the request has no value for {{{{{slot}}}}}"


@given(st.text(alphabet="{}turnopae .0", max_size=30), st.text(max_size=30))
def test_text_that_passes_the_check_can_be_filled(text: str, any_text: str) -> None:
    """Any text passes if its braces are escaped."""
    written = any_text.replace("{{", "{{open}}")
    check_template(written)
    assert fill(written, FACTS) == any_text
    with contextlib.suppress(ValueError):
        check_template(text)
        assert isinstance(fill(text, FACTS), str)


def test_last_tool_result_may_be_earlier_and_system_text_is_not_user_text() -> None:
    messages = user(tool_result("old", "old")), user(text("new")), {"role": "system", "content": "be kind"}
    facts = RequestFacts(call=call(*messages), turn=1)
    assert (facts.last_tool_result, facts.tool_results, facts.last_user_text) == ("old", (), "new")
    for malformed in (None, 3, [3, {"type": "text"}], [{"type": "text", "text": 5}]):
        assert RequestFacts(call=call(user(tool_result("a", malformed))), turn=1).tool_results == ("",)


@pytest.mark.parametrize(
    ("slot", "value"), [("/s(.)c/", "e"), ("/first|second/", "second"), ("/^(st.*)t/", "star"), ("/go (on)/", "on")]
)
def test_an_expression_is_found_where_it_stands_last(slot: str, value: str) -> None:
    check_template(f"{{{{{slot}}}}}")
    assert fill(f"<{{{{{slot}}}}}>", FACTS) == f"<{value}>"


async def test_the_number_of_names_is_bounded_and_a_cancelled_wait_leaves_none() -> None:
    signals = ScriptSignals()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(signals.wait, ["cancelled"])
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert signals.awaited == []
    for number in range(1_000):
        signals.raise_signal(f"s{number}")
    signals.raise_signal("s0")
    with pytest.raises(ApiError, match="1,000 signals are raised or awaited already; use fewer names"):
        signals.raise_signal("one more")
    with pytest.raises(ApiError, match="1,000 signals"):
        await signals.wait(["one more"])

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.loop.model.catalog import load_models
from coterie.scenarios.api_server.request.api_request import ApiCaller, ApiRequest, RequestMessage
from coterie.scenarios.api_server.script.request_facts import RequestFacts
from coterie.scenarios.api_server.script.text_template import SlotEmpty, check_template, fill


def call(*messages: RequestMessage) -> ApiRequest:
    model = load_models().get("claude-opus-5-5")
    caller = ApiCaller(key="k", agent="lead", incarnation=2, turn=7)
    tools = ({"name": "Read"}, {"name": "Bash"})
    return ApiRequest(caller=caller, model=model, model_name="opus", max_tokens=9, messages=messages, tools=tools)


def message(role: Any, *blocks: Any) -> RequestMessage:
    return RequestMessage(
        role=role, content=tuple({"type": "text", "text": b} if isinstance(b, str) else b for b in blocks)
    )


def result(content: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t", "content": content}


def use(id: str) -> dict[str, Any]:  # noqa: A002 - the API's word
    return {"type": "tool_use", "id": id, "name": "Read", "input": {}}


FACTS = RequestFacts(
    call=call(
        message("user", "start"),
        message("assistant", use("toolu_1"), use("toolu_2")),
        message("user", result("first"), result("second"), "go on"),
    ),
    turn=7,
    match=("fix it", "it"),
)
NOTHING = RequestFacts(call=attrs.evolve(call(message("assistant", "ok")), caller=ApiCaller(key="k")), turn=7)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{{last_user_text}}", "go on"),
        ("{{first_user_text}}!", "start!"),
        ("{{last_tool_result}}", "second"),
        ("{{tool_result.0}} {{tool_result.1}}", "first second"),
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
    facts = attrs.evolve(FACTS, call=call(message("user", "{{agent}} {{nonsense}}")))
    assert fill("<{{last_user_text}}>", facts) == "<{{agent}} {{nonsense}}>"


def test_every_string_of_a_value_is_filled_and_stays_a_string() -> None:
    value = {"n": "{{turn}}", "list": ["{{agent}}", 3, None], "{{turn}}": {"deep": "x{{turn}}"}}
    assert fill(value, FACTS) == {"n": "7", "list": ["lead", 3, None], "{{turn}}": {"deep": "x7"}}


def test_the_template_itself_is_never_changed() -> None:
    value: dict[str, Any] = {"list": ["a"], "deep": {}}
    filled = fill(value, FACTS)
    filled["list"].append("b")
    filled["deep"]["c"] = 1
    assert value == {"list": ["a"], "deep": {}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{tunr}}", "unknown slot {{tunr}}; did you mean 'turn'? (A literal {{ is written {{open}}.)"),
        ("{{tool_result}}", "unknown slot {{tool_result}}; did you mean 'tool_result.N'?"),
        ("{{tool_result.x}}", "unknown slot {{tool_result.x}}; did you mean 'tool_result.N'?"),
        ("{{agent.1}}", "unknown slot {{agent.1}}; did you mean 'agent'?"),
        ("{{}}", "unknown slot {{}}; expected one of agent, first_user_text,"),
        ("style={{color: 1}}", "unknown slot {{color: 1}}; expected one of"),
        ("a {{turn", "the slot '{{turn' is not closed. (A literal {{ is written {{open}}.)"),
        ("{{match.2}}", "{{match.2}}: the regular expression has 1 groups"),
    ],
)
def test_a_slot_that_cannot_be_filled_is_refused_beforehand(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"slot|match") as caught:
        check_template(text, groups=1)
    assert str(caught.value).startswith(reason)


def test_match_needs_a_regular_expression() -> None:
    with pytest.raises(ValueError, match=r"\{\{match.0\}\} needs a `when` with a regular expression"):
        check_template("{{match.0}}")


@pytest.mark.parametrize("slot", ["agent", "incarnation", "last_user_text", "tool_result.0", "tool_id.0", "match.1"])
def test_a_fact_the_request_lacks_is_an_error_and_not_an_empty_string(slot: str) -> None:
    with pytest.raises(SlotEmpty) as caught:
        fill(f"{{{{{slot}}}}}", NOTHING)
    assert str(caught.value) == f"the request has no value for {{{{{slot}}}}}"


@given(st.text(alphabet="{}turnopae .0", max_size=30))
def test_text_that_passes_the_check_can_be_filled(text: str) -> None:
    try:
        check_template(text)
    except ValueError:
        return
    assert isinstance(fill(text, FACTS), str)


@given(st.text(max_size=30))
def test_any_text_can_be_written_with_its_braces_escaped(text: str) -> None:
    written = text.replace("{{", "{{open}}")
    check_template(written)
    assert fill(written, FACTS) == text


def test_facts_are_read_from_the_request() -> None:
    parts = [{"type": "text", "text": "x"}, {"type": "image", "source": {}}, {"type": "text", "text": "y"}]
    facts = RequestFacts(
        call=call(
            message("user", "first", "second"),
            message("assistant", "ok", use("old")),
            message("user", result("old")),
            message("assistant", use("a"), use("b")),
            message("user", result("one"), result(parts)),
        ),
        turn=7,
    )
    assert (facts.first_user_text, facts.last_user_text) == ("first", "second")
    assert facts.tool_results == ("one", "x\ny")
    assert facts.last_tool_result == "x\ny"
    assert facts.tool_ids == ("a", "b")
    assert facts.turn == 7
    assert facts.tools == frozenset({"Read", "Bash"})


def test_last_tool_result_may_be_earlier_and_system_text_is_not_user_text() -> None:
    facts = RequestFacts(
        call=call(message("user", result("old")), message("user", "new"), message("system", "be kind")), turn=1
    )
    assert (facts.last_tool_result, facts.tool_results) == ("old", ())
    assert facts.last_user_text == "new"


@pytest.mark.parametrize("content", [None, 3, [3, {"type": "text"}], [{"type": "text", "text": 5}]])
def test_a_malformed_result_has_an_empty_text(content: Any) -> None:
    assert RequestFacts(call=call(message("user", result(content))), turn=1).tool_results == ("",)


@pytest.mark.parametrize(
    ("slot", "value"),
    [("/s(.)c/", "e"), ("/first|second/", "second"), ("/^(st.*)t/", "star"), ("/go (on)/", "on")],
)
def test_an_expression_is_found_where_it_stands_last(slot: str, value: str) -> None:
    check_template(f"{{{{{slot}}}}}")
    assert fill(f"<{{{{{slot}}}}}>", FACTS) == f"<{value}>"


def test_expression_without_match_or_with_an_error_is_refused() -> None:
    with pytest.raises(SlotEmpty, match="no value for"):
        fill("{{/never/}}", FACTS)
    with pytest.raises(ValueError, match=r"/\(/ is not a regular expression"):
        check_template("{{/(/}}")

from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.loop.model.catalog import load_models
from coterie.scenarios.api_server.request.api_request import ApiCaller, ApiRequest, RequestMessage
from coterie.scenarios.api_server.request.errors import ApiError
from coterie.scenarios.api_server.script import reply_selection
from coterie.scenarios.api_server.script.reply_selection import ReplySelector, SelectedReply
from coterie.scenarios.api_server.script.script_parser import parse_script
from tests.examples import examples

MODELS = load_models()


def chooser(text: str, *, seed: int = 0) -> ReplySelector:
    return ReplySelector(parse_script(dedent(text), "x.yaml"), seed=seed)


def request(caller: ApiCaller, *blocks: Any, model: str = "claude-opus-5-5", tools: tuple[str, ...] = ()) -> ApiRequest:
    content = tuple({"type": "text", "text": block} if isinstance(block, str) else block for block in blocks)
    return ApiRequest(
        caller=caller,
        model=MODELS.get(model),
        model_name=model,
        max_tokens=100,
        tools=tuple({"name": name} for name in tools),
        messages=(RequestMessage(role="user", content=content or ({"type": "text", "text": "hello"},)),),
    )


def ask(
    choose: ReplySelector, agent: str | None, turn: int | None, *blocks: Any, purpose: str = "turn", **more: Any
) -> SelectedReply:
    return choose.select(request(ApiCaller(key="k", agent=agent, turn=turn, purpose=purpose), *blocks, **more), b"")


def text(chosen: SelectedReply) -> str:
    said: str = chosen.content[0]["text"]
    return said


def refused(choose: ReplySelector, agent: str | None, turn: int | None, *blocks: Any, **more: Any) -> str:
    with pytest.raises(ApiError) as caught:
        ask(choose, agent, turn, *blocks, **more)
    assert (caught.value.status, caught.value.kind) == (400, "invalid_request_error")
    return caught.value.message


def test_the_turn_picks_the_reply_counting_times() -> None:
    choose = chooser("default: [a, {text: b, times: 3}, c, {text: d, times: always}]")
    assert "".join(text(ask(choose, "x", turn)) for turn in range(1, 9)) == "abbbcddd"


def test_the_same_turn_asked_again_gets_the_same_reply() -> None:
    choose = chooser("default: [a, b, c]")
    assert [text(ask(choose, "x", turn)) for turn in (2, 2, 1, 3, 2)] == ["b", "b", "a", "c", "b"]


def test_an_agent_without_a_list_is_served_by_default() -> None:
    choose = chooser("lead: [mine]\ndefault: [ours]")
    assert [text(ask(choose, agent, 1)) for agent in ("lead", "other", None)] == ["mine", "ours", "ours"]


def test_an_agent_with_a_list_never_falls_back_to_default_for_its_turns() -> None:
    choose = chooser("lead: [mine]\ndefault: [ours, ours, {text: any, when: {model: claude}}]")
    assert "the sequence of 'lead' has 1 reply, this is turn 2" in refused(choose, "lead", 2)


def test_helper_calls_take_none_of_the_agents_replies() -> None:
    choose = chooser("default: [a, {text: note, purpose: notes}, b]")
    assert text(ask(choose, "x", 1)) == "a"
    assert text(ask(choose, "x", 1, purpose="notes")) == "note"
    assert text(ask(choose, "x", 2)) == "b"


def test_only_helper_purposes_fall_back_to_default() -> None:
    choose = chooser("""
        lead: [a, {text: mine, purpose: notes}]
        default: [b, {text: recalled, purpose: recall, times: always}, {text: ours, purpose: notes}]
    """)
    assert text(ask(choose, "lead", 5, purpose="recall")) == "recalled"
    assert text(ask(choose, "lead", 1, purpose="notes")) == "mine"
    assert "the sequence of 'lead' has 1 reply" in refused(choose, "lead", 2, purpose="notes")


@pytest.mark.parametrize(
    ("when", "yes", "no"),
    [
        ("last_user_text: fix the", ["please fix the bug"], ["please fix a bug"]),
        ("last_user_text: /^FIX/i", ["fix it"], ["do fix it"]),
        ("last_tool_result: failed", [{"type": "tool_result", "content": "it failed"}], ["it failed"]),
        ("turn: 1", ["any"], None),
    ],
)
def test_a_rule_is_tried_before_the_sequence(when: str, yes: list[Any], no: list[Any] | None) -> None:
    choose = chooser(f"default: [{{text: sequence, times: always}}, {{text: rule, when: {{{when}}}}}]")
    assert text(ask(choose, "x", 1, *yes)) == "rule"
    assert text(ask(choose, "x", 2, *(no or yes))) == "sequence"


def test_rules_see_the_model_and_the_tools_offered() -> None:
    choose = chooser("default: [{text: small, when: {model: haiku}}, {text: edits, when: {tool: Edit}}, none]")
    assert text(ask(choose, "x", 1, model="claude-haiku-5-5")) == "small"
    assert text(ask(choose, "x", 1, tools=("Read", "Edit"))) == "edits"
    assert text(ask(choose, "x", 1, tools=("EditAll",))) == "none"


def test_the_first_rule_that_matches_answers() -> None:
    choose = chooser("default: [{text: a, when: {last_user_text: b}}, {text: c, when: {model: claude}}]")
    assert [text(ask(choose, "x", 1, said)) for said in ("b", "z")] == ["a", "c"]


def test_a_rule_with_only_a_purpose_serves_that_purpose() -> None:
    choose = chooser("default: [turn, {text: memory, when: {purpose: recall}}]")
    assert [text(ask(choose, "x", turn, purpose="recall")) for turn in (1, 9)] == ["memory", "memory"]
    assert text(ask(choose, "x", 1)) == "turn"


def test_the_times_of_a_rule_count_distinct_turns_of_a_lane() -> None:
    choose = chooser("default: [{text: rule, when: {last_user_text: go}, times: 2}, {text: no, times: always}]")
    turns = [1, 1, 3, 4, 3, 1]
    assert [text(ask(choose, "x", turn, "go")) for turn in turns] == ["rule", "rule", "rule", "no", "rule", "rule"]
    assert text(ask(choose, "y", 4, "go")) == "rule"


def test_slots_are_filled_from_the_request_and_the_rule() -> None:
    choose = chooser("""
        default:
          - when: {last_user_text: "/fix (\\\\w+)/"}
            text: "{{agent}} fixes {{match.1}} ({{match.0}})"
            tools: [{Bash: {command: "grep {{match.1}}", turn: "{{turn}}"}}]
    """)
    chosen = ask(choose, "lead", 4, "please fix foo now")
    assert text(chosen) == "lead fixes foo (fix foo)"
    assert chosen.content[1]["input"] == {"command": "grep foo", "turn": "4"}
    assert chosen.facts.match == ("fix foo", "foo")
    assert chosen.reply.name == "default[1]"


def test_selected_content_can_be_modified_without_side_effects() -> None:
    choose = chooser("default: [{tools: [{Read: {path: [a]}}], times: always}]")
    ask(choose, "x", 1).content[0]["input"]["path"].append("b")
    assert ask(choose, "x", 1).content[0]["input"] == {"path": ["a"]}


def test_a_slot_the_request_cannot_fill_is_an_error_with_the_line() -> None:
    choose = chooser("default:\n- a\n- text: '{{tool_result.1}}'\n")
    one = {"type": "tool_result", "content": "only"}
    assert refused(choose, "x", 2, one) == "script x.yaml line 3: the request has no value for {{tool_result.1}}"


def test_an_exhausted_sequence_is_explained() -> None:
    assert refused(chooser("default: [a, b, c]"), "lead", 4) == (
        "no scripted reply for agent 'lead', purpose 'turn', turn 4; last user text: 'hello'\n"
        "the sequence of 'default' has 3 replies, this is turn 4; add a reply or `times: always`"
    )
    longer = chooser("default: [a, {text: b, times: 4}]")
    assert "has 2 replies for 5 turns, this is turn 6" in refused(longer, "lead", 6)


def test_the_nearest_rule_is_explained() -> None:
    choose = chooser("""
        default:
          - text: far
            when: {last_user_text: fix, tool: Edit, turn: 9, last_tool_result: x}
          - text: near
            when: {last_user_text: fix, model: opus}
    """)
    assert refused(choose, "lead", 1, "hello") == (
        "no scripted reply for agent 'lead', purpose 'turn', turn 1; last user text: 'hello'\n"
        "script x.yaml line 5: rule needs last_user_text containing 'fix', the request has the last user text 'hello'"
    )


def test_each_failed_condition_says_what_was_seen() -> None:
    choose = chooser(
        "default: [{text: a, when: {last_user_text: /fix/i, last_tool_result: x, tool: Edit, turn: 9, model: haiku}}]"
    )
    reasons = refused(choose, None, 1, "hello" * 50, tools=("Read", "Bash")).splitlines()[1]
    assert reasons == (
        "script x.yaml line 1: rule needs last_user_text matching /fix/i, the request has the last user text "
        f"'{('hello' * 8)[:40]} ... {('hello' * 8)[-40:]}'; and last_tool_result containing 'x', the request has no "
        "last tool result; and model containing 'haiku', the request has the model 'claude-opus-5-5'; and tool 'Edit', "
        "the request offers Bash, Read; and turn 9, this is turn 1"
    )


def test_a_spent_rule_is_explained() -> None:
    choose = chooser("default: [{text: a, when: {model: claude}, times: 1}]")
    ask(choose, "x", 1)
    assert "an unused turn, but it has served 1 (`times`)" in refused(choose, "x", 2)


def test_a_missing_agent_and_a_missing_purpose_are_explained() -> None:
    choose = chooser("lead: [a]\ntester: [b]")
    assert refused(choose, "x", 1).splitlines()[1] == (
        "script x.yaml has replies for 'lead', 'tester' only; add the agent or 'default'"
    )
    assert refused(choose, "lead", 1, purpose="recall").splitlines()[1] == (
        "script x.yaml: 'lead' has no reply with the purpose 'recall'; add one"
    )


def plain(choose: ReplySelector, digest: bytes, *, key: str = "k", retry: int = 0) -> SelectedReply:
    return choose.select(request(ApiCaller(key=key, retry=retry)), digest)


def test_clients_that_do_not_count_turns_are_served_in_order_per_key() -> None:
    choose = chooser("default: ['{{turn}} a', '{{turn}} b', '{{turn}} c']")
    assert [text(plain(choose, b"1", key=key)) for key in "kkjkj"] == ["1 a", "2 b", "1 a", "3 c", "2 b"]


def test_a_retry_of_the_last_request_gets_the_same_reply() -> None:
    choose = chooser("default: [a, b, c]")
    assert text(plain(choose, b"1")) == "a"
    assert text(plain(choose, b"1", retry=1)) == "a"
    assert text(plain(choose, b"1", retry=2)) == "a"
    assert text(plain(choose, b"2", retry=1)) == "b"
    assert text(plain(choose, b"2")) == "c"


def test_a_refused_request_does_not_advance_the_order() -> None:
    choose = chooser("default: [{text: '{{last_tool_result}}'}, b]")
    with pytest.raises(ApiError):
        plain(choose, b"1")
    served = choose.select(request(ApiCaller(key="k"), {"type": "tool_result", "content": "done"}), b"2")
    assert text(served) == "done"


def faults(choose: ReplySelector, turn: int, count: int, agent: str = "x") -> list[str | None]:
    asked = [ask(choose, agent, turn).fault for _ in range(count)]
    return [fault.kind if fault else None for fault in asked]


def test_the_fault_of_a_reply_strikes_first_and_the_retry_is_answered() -> None:
    choose = chooser("default: [{text: a, times: 2, fault: overloaded}, b]")
    assert faults(choose, 1, 3) == ["overloaded", None, None]
    assert faults(choose, 2, 2) == ["overloaded", None]
    assert faults(choose, 3, 1) == [None]
    assert faults(choose, 1, 2, agent="y") == ["overloaded", None]


def test_the_fault_of_a_reply_strikes_as_often_as_it_says() -> None:
    choose = chooser("default: [{text: a, fault: {kind: cut, count: 2}}, {text: b, fault: {kind: cut, count: always}}]")
    assert faults(choose, 1, 3) == ["cut", "cut", None]
    assert faults(choose, 2, 4) == ["cut"] * 4


def test_the_fault_of_a_reply_may_be_for_one_turn_only() -> None:
    choose = chooser("default: [{text: a, times: 3, fault: {kind: cut, turn: 2}}]")
    assert [faults(choose, turn, 1) for turn in (1, 2, 3)] == [[None], ["cut"], [None]]


def test_the_fault_of_a_reply_strikes_the_retry_of_an_uncounted_client_once() -> None:
    choose = chooser("default: [{text: a, fault: disconnect}, b]")
    first, again = plain(choose, b"1"), plain(choose, b"1", retry=1)
    assert first.fault is not None
    assert again.fault is None
    assert text(again) == "a"


def test_random_faults_are_repeatable_and_independent_of_other_agents() -> None:
    script = "default: [{text: a, times: always, fault: {kind: cut, count: always, probability: 0.5}}]"
    first, second, other = chooser(script, seed=1), chooser(script, seed=1), chooser(script, seed=2)
    expected = faults(first, 1, 40)
    mixed = []
    for _ in range(40):
        faults(second, 1, 1, agent="y")
        mixed += faults(second, 1, 1)
    assert mixed == expected != faults(other, 1, 40)
    assert 8 < expected.count("cut") < 32


def test_selector_state_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest client is forgotten, and so begins again."""
    monkeypatch.setattr(reply_selection, "MEMORY_LIMIT", 2)
    choose = chooser("default: [a, b, c]")
    assert [text(plain(choose, b"1", key=key)) for key in "ijik"] == ["a", "a", "b", "a"]
    assert [text(plain(choose, b"1", key=key)) for key in "ij"] == ["c", "a"]


@pytest.mark.slow
@examples(40)
@given(
    times=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    asked=st.lists(st.integers(1, 24), min_size=1, max_size=20),
)
def test_the_choice_depends_on_the_turn_alone(times: list[int], asked: list[int]) -> None:
    replies = ", ".join(f"{{text: r{index}, times: {count}}}" for index, count in enumerate(times))
    choose = chooser(f"default: [{replies}]")
    expanded = [f"r{index}" for index, count in enumerate(times) for _ in range(count)]
    for turn in asked:
        if turn <= len(expanded):
            assert text(ask(choose, "x", turn)) == expanded[turn - 1]
        else:
            assert f"this is turn {turn}" in refused(choose, "x", turn)

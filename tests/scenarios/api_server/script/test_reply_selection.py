import re
from textwrap import dedent
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.scenarios.api_server.request.api_request import ApiCaller, ApiRequest
from coterie.scenarios.api_server.request.errors import ApiError
from coterie.scenarios.api_server.script import reply_selection
from coterie.scenarios.api_server.script.reply_selection import ReplySelector, SelectedReply
from coterie.scenarios.api_server.script.script_parser import parse_script
from tests.examples import examples
from tests.scenarios.api_server.request_samples import make_call, tool, user
from tests.scenarios.api_server.request_samples import text as words


def chooser(text: str, *, seed: int = 0) -> ReplySelector:
    return ReplySelector(parse_script(dedent(text), "x.yaml"), seed=seed)


def request(caller: ApiCaller, *blocks: Any, model: str = "claude-opus-5-5", tools: tuple[str, ...] = ()) -> ApiRequest:
    content = [words(block) if isinstance(block, str) else block for block in blocks or ("hello",)]
    return attrs.evolve(make_call(user(*content), model=model, tools=[tool(name) for name in tools]), caller=caller)


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


def spelt(word: str) -> tuple[str | None, int, str]:
    """Agent, turn and purpose of a word such as `lead2/notes`."""
    agent, turn, purpose = re.fullmatch(r"([a-z]*)([0-9]+)/?([a-z]*)", word).groups()  # type: ignore[union-attr]
    return agent or None, int(turn), purpose or "turn"


NOTES = "lead: [a, {text: mine, purpose: notes}]\n"
RECALL = "default: [b, {text: recalled, purpose: recall, times: always}, {text: ours, purpose: notes}]"
SERVED = {
    "by turn, counting times": (
        "default: [a, {text: b, times: 3}, c, {text: d, times: always}]",
        ("x1 x2 x3 x4 x5 x6 x7 x8", "a b b b c d d d"),
    ),
    "again the same": ("default: [a, b, c]", ("x2 x2 x1 x3 x2", "b b a c b")),
    "default for agents without a list": ("lead: [mine]\ndefault: [ours]", ("lead1 other1 1", "mine ours ours")),
    "helpers apart": ("default: [a, {text: note, purpose: notes}, b]", ("x1 x1/notes x2", "a note b")),
    "default for helpers": (NOTES + RECALL, ("lead5/recall lead1/notes", "recalled mine")),
    "a rule for a purpose": (
        "default: [turn, {text: memory, when: {purpose: recall}}]",
        ("x1/recall x9/recall x1", "memory memory turn"),
    ),
}


@pytest.mark.parametrize(("script", "turns"), SERVED.values(), ids=SERVED)
def test_agent_turn_and_purpose_pick_the_reply(script: str, turns: tuple[str, str]) -> None:
    choose = chooser(script)
    answers = []
    for word in turns[0].split():
        agent, turn, purpose = spelt(word)
        answers.append(text(ask(choose, agent, turn, purpose=purpose)))
    assert " ".join(answers) == turns[1]


OWN = "lead: [mine]\ndefault: [ours, ours, {text: any, when: {model: claude}}]"
FAR = """
default:
  - text: far
    when: {last_user_text: fix, tool: Edit, turn: 9, last_tool_result: x}
  - text: near
    when: {last_user_text: fix, model: opus}
"""
UNANSWERED = {
    "own list without default": (OWN, "lead2", "the sequence of 'lead' has 1 reply, this is turn 2"),
    "own helpers without default": (NOTES + RECALL, "lead2/notes", "the sequence of 'lead' has 1 reply"),
    "exhausted": (
        "default: [a, b, c]",
        "lead4",
        "the sequence of 'default' has 3 replies, this is turn 4; add a reply or `times: always`",
    ),
    "exhausted times": ("default: [a, {text: b, times: 4}]", "lead6", "has 2 replies for 5 turns, this is turn 6"),
    "the nearest rule": (
        FAR,
        "lead1",
        "script x.yaml line 5: rule needs last_user_text containing 'fix', the request has the last user text 'hello'",
    ),
    "every condition": (
        "default: [{text: a, when: {last_user_text: /fix/i, last_tool_result: x, tool: Edit, turn: 9, model: haiku}}]",
        "x1",
        "no last tool result; and model containing 'haiku', the request has the model 'claude-opus-5-5'; and tool",
    ),
    "a missing agent": (
        "lead: [a]\ntester: [b]",
        "x1",
        "script x.yaml has replies for 'lead', 'tester' only; add the agent or 'default'",
    ),
    "a missing purpose": (
        "lead: [a]\ntester: [b]",
        "lead1/recall",
        "script x.yaml: 'lead' has no reply with the purpose 'recall'; add one",
    ),
}


@pytest.mark.parametrize(("script", "word", "reason"), UNANSWERED.values(), ids=UNANSWERED)
def test_a_request_without_a_reply_is_told_why(script: str, word: str, reason: str) -> None:
    agent, turn, purpose = spelt(word)
    asked, _, why = refused(chooser(script), agent, turn, purpose=purpose).partition("\n")
    request_ = f"agent {agent!r}, purpose {purpose!r}, turn {turn}; last user text: 'hello'"
    assert asked == f"no scripted reply for {request_}"
    assert reason in why


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


def test_rules_see_the_model_and_the_tools_offered_and_the_first_answers() -> None:
    choose = chooser("default: [{text: a, when: {last_user_text: b}}, {text: c, when: {model: claude}}]")
    assert [text(ask(choose, "x", 1, said)) for said in ("b", "z")] == ["a", "c"]
    choose = chooser("default: [{text: small, when: {model: haiku}}, {text: edits, when: {tool: Edit}}, none]")
    assert text(ask(choose, "x", 1, model="claude-haiku-5-5")) == "small"
    assert text(ask(choose, "x", 1, tools=("Read", "Edit"))) == "edits"
    assert text(ask(choose, "x", 1, tools=("EditAll",))) == "none"


def test_the_times_of_a_rule_count_distinct_turns_of_a_lane() -> None:
    choose = chooser("default: [{text: rule, when: {last_user_text: go}, times: 2}, {text: no, times: always}]")
    turns = [1, 1, 3, 4, 3, 1]
    assert [text(ask(choose, "x", turn, "go")) for turn in turns] == ["rule", "rule", "rule", "no", "rule", "rule"]
    assert text(ask(choose, "y", 4, "go")) == "rule"
    spent = chooser("default: [{text: a, when: {model: claude}, times: 1}]")
    ask(spent, "x", 1)
    assert "an unused turn, but it has served 1 (`times`)" in refused(spent, "x", 2)


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


def test_a_slot_the_request_cannot_fill_is_an_error_with_the_line() -> None:
    choose = chooser("default:\n- a\n- text: '{{tool_result.1}}'\n")
    one = {"type": "tool_result", "content": "only"}
    assert refused(choose, "x", 2, one) == "script x.yaml line 3: the request has no value for {{tool_result.1}}"


def plain(choose: ReplySelector, digest: bytes, *, key: str = "k", retry: int = 0) -> SelectedReply:
    return choose.select(request(ApiCaller(key=key, retry=retry)), digest)


def test_clients_that_do_not_count_turns_are_served_in_order_per_key() -> None:
    choose = chooser("default: ['{{turn}} a', '{{turn}} b', '{{turn}} c']")
    assert [text(plain(choose, b"1", key=key)) for key in "kkjkj"] == ["1 a", "2 b", "1 a", "3 c", "2 b"]


def test_a_retry_gets_the_same_reply_and_a_refusal_does_not_advance_the_order() -> None:
    choose = chooser("default: [a, '{{last_tool_result}}', c]")
    assert [text(plain(choose, b"1", retry=retry)) for retry in range(3)] == ["a", "a", "a"]
    with pytest.raises(ApiError):
        plain(choose, b"2")
    served = choose.select(request(ApiCaller(key="k"), {"type": "tool_result", "content": "done"}), b"3")
    assert text(served) == "done"
    assert text(plain(choose, b"4", retry=1)) == "c"


def faults(choose: ReplySelector, turn: int, count: int, agent: str = "x") -> list[str | None]:
    asked = [ask(choose, agent, turn).fault for _ in range(count)]
    return [fault.kind if fault else None for fault in asked]


def test_the_fault_of_a_reply_strikes_first_and_as_often_as_it_says() -> None:
    choose = chooser("default: [{text: a, times: 2, fault: overloaded}, b]")
    assert faults(choose, 1, 3) == ["overloaded", None, None]
    assert faults(choose, 2, 2) == ["overloaded", None]
    assert faults(choose, 3, 1) == [None]
    assert faults(choose, 1, 2, agent="y") == ["overloaded", None]
    choose = chooser("default: [{text: a, fault: {kind: cut, count: 2}}, {text: b, fault: {kind: cut, count: always}}]")
    assert faults(choose, 1, 3) == ["cut", "cut", None]
    assert faults(choose, 2, 4) == ["cut"] * 4
    choose = chooser("default: [{text: a, times: 3, fault: {kind: cut, turn: 2}}]")
    assert [faults(choose, turn, 1) for turn in (1, 2, 3)] == [[None], ["cut"], [None]]
    choose = chooser("default: [{text: a, fault: disconnect}, b]")
    first, again = plain(choose, b"1"), plain(choose, b"1", retry=1)
    assert (first.fault is None, again.fault, text(again)) == (False, None, "a")


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

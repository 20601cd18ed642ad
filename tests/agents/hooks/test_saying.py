"""What a hook says, by its exit code and what it prints."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.hooks.hook import HOOK_EVENTS, HookEvent
from coterie.agents.hooks.running import Ran
from coterie.agents.hooks.saying import LONGEST, Said, combine, hear


def ran(exit_code: int | None = 0, output: str = "", errors: str = "", failure: str = "") -> Ran:
    return Ran(exit_code=exit_code, output=output, errors=errors, seconds=0.1, failure=failure)


def said(event: HookEvent, value: dict[str, Any]) -> Said:
    return hear(event, ran(output=json.dumps(value)))


def test_exit_code_two_objects_with_what_it_wrote_to_standard_error() -> None:
    assert hear("PreToolUse", ran(2, "out", "no\n")) == Said(decision="block", reason="no")
    assert hear("Stop", ran(2)).reason == "It gave no reason."


@pytest.mark.parametrize("event", ["SessionStart", "SessionEnd", "PostCompact"])
def test_what_has_happened_cannot_be_objected_to(event: HookEvent) -> None:
    assert hear(event, ran(2, errors="no")) == Said(decision="failed", reason="no")
    assert said(event, {"decision": "block", "reason": "no"}).decision == "failed"


def test_other_exit_codes_are_failures_of_the_hook() -> None:
    assert hear("PreToolUse", ran(127, errors="not found")) == Said(decision="failed", reason="not found")
    assert hear("PreToolUse", ran(1)) == Said(decision="failed", reason="it ended with 1")
    assert hear("PreToolUse", ran(None, failure="too long")) == Said(decision="failed", reason="too long")


def test_plain_output_is_context_when_a_session_starts_and_else_nothing() -> None:
    assert hear("SessionStart", ran(output="It is Tuesday.\n")) == Said(context="It is Tuesday.")
    assert hear("PreToolUse", ran(output="fine\n")) == Said()


def test_json_decides_over_a_call() -> None:
    own = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no"}
    assert said("PreToolUse", {"hookSpecificOutput": own}) == Said(decision="block", reason="no")
    assert said("PreToolUse", {"hookSpecificOutput": {"permissionDecision": "ask"}}).decision == "ask"
    assert said("PreToolUse", {"decision": "approve"}).decision == "allow"
    changed = said("PreToolUse", {"hookSpecificOutput": {"updatedInput": {"command": "ls"}}})
    assert changed == Said(updated_input={"command": "ls"})
    assert said("PostToolUse", {"hookSpecificOutput": {"updatedInput": {"command": "ls"}}}) == Said()


def test_json_ends_the_run_and_speaks_to_the_user() -> None:
    value = {"continue": False, "stopReason": "enough", "systemMessage": "bye", "decision": "block"}
    assert said("PostToolUse", value) == Said(decision="stop", reason="enough", message="bye")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"decision": "perhaps"}, "the decision is 'perhaps'"),
        ({"decision": ["block"]}, "the decision is ['block']"),
        ({"reason": 3}, "reason must be a text"),
        ({"hookSpecificOutput": []}, "hookSpecificOutput must be an object"),
        ({"hookSpecificOutput": {"hookEventName": "Stop"}}, "hookEventName is 'Stop', but this was PreToolUse"),
        ({"hookSpecificOutput": {"updatedInput": "ls"}}, "updatedInput must be an object"),
        ({"hookSpecificOutput": {"additionalContext": {}}}, "additionalContext must be a text"),
    ],
)
def test_what_cannot_be_used_is_a_failure_that_says_why(value: dict[str, Any], words: str) -> None:
    told = said("PreToolUse", value)
    assert told.decision == "failed"
    assert words in told.reason


@pytest.mark.parametrize("output", ["{", '{"a": }', "{" * 100_000])
def test_garbage_is_a_failure_and_not_an_objection(output: str) -> None:
    told = hear("PreToolUse", ran(output=output))
    assert told.decision == "failed"
    assert "no JSON" in told.reason


def test_long_words_are_cut() -> None:
    assert len(hear("Stop", ran(2, errors="x" * 3 * LONGEST)).reason) == LONGEST
    assert len(hear("SessionStart", ran(output="x" * 3 * LONGEST)).context) == LONGEST


@given(event=st.sampled_from(HOOK_EVENTS), exit_code=st.sampled_from([0, 1, 2, None]), output=st.text())
def test_nothing_that_a_hook_prints_raises(event: HookEvent, exit_code: int | None, output: str) -> None:
    for text in (output, "{" + output, json.dumps({"decision": output, "reason": output})):
        assert hear(event, ran(exit_code, text, output)).decision in ("none", "allow", "block", "failed")


def test_one_objection_is_enough_and_who_asks_outweighs_who_allows() -> None:
    allows, asks = Said(decision="allow"), Said(decision="ask", reason="sure?")
    assert combine([allows, Said(decision="block", reason="no"), asks]).objections == ("no",)
    together = combine([allows, asks, Said(decision="failed", reason="oops")])
    assert (together.objections, together.vote, together.vote_reason) == ((), "ask", "sure?")
    assert combine([allows, Said()]).vote == "allow"
    assert combine([Said(decision="failed")]).vote is None


def test_of_several_changed_inputs_the_last_counts() -> None:
    updates = [Said(updated_input={"n": 1}), Said(updated_input={"n": 2}), Said()]
    assert combine(updates).updated_input == {"n": 2}
    assert combine([]).updated_input is None

"""Parsing of a hook's exit code and output."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.hooks.hook import HOOK_EVENTS, HookEvent
from coterie.agents.hooks.registry import MAX_CHARACTERS, CommandResult, HookOutput, combine_outputs, parse_output


def ran(exit_code: int | None = 0, output: str = "", errors: str = "", failure: str = "") -> CommandResult:
    return CommandResult(exit_code=exit_code, output=output, errors=errors, seconds=0.1, failure=failure)


def parse_json_output(event: HookEvent, value: dict[str, Any]) -> HookOutput:
    return parse_output(event, ran(output=json.dumps(value)))


@pytest.mark.parametrize("event", ["SessionStart", "SessionEnd", "PostCompact"])
def test_past_event_cannot_be_blocked(event: HookEvent) -> None:
    assert parse_output(event, ran(2, errors="no")) == HookOutput(decision="failed", reason="no")
    assert parse_json_output(event, {"decision": "block", "reason": "no"}).decision == "failed"


def test_exit_code_two_blocks_and_others_are_failures_of_the_hook() -> None:
    assert parse_output("PreToolUse", ran(2, "out", "no\n")) == HookOutput(decision="block", reason="no")
    assert parse_output("Stop", ran(2)).reason == "No reason was given."
    assert parse_output("PreToolUse", ran(127, errors="not found")) == HookOutput(decision="failed", reason="not found")
    assert parse_output("PreToolUse", ran(1)) == HookOutput(decision="failed", reason="exit code 1")
    assert parse_output("PreToolUse", ran(None, failure="too long")) == HookOutput(decision="failed", reason="too long")


def test_plain_output_is_context_when_a_session_starts_and_else_nothing() -> None:
    assert parse_output("SessionStart", ran(output="It is Tuesday.\n")) == HookOutput(context="It is Tuesday.")
    assert parse_output("PreToolUse", ran(output="fine\n")) == HookOutput()


def test_json_output_decides_a_tool_call() -> None:
    own = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no"}
    assert parse_json_output("PreToolUse", {"hookSpecificOutput": own}) == HookOutput(decision="block", reason="no")
    assert parse_json_output("PreToolUse", {"hookSpecificOutput": {"permissionDecision": "ask"}}).decision == "ask"
    assert parse_json_output("PreToolUse", {"decision": "approve"}).decision == "allow"
    changed = parse_json_output("PreToolUse", {"hookSpecificOutput": {"updatedInput": {"command": "ls"}}})
    assert changed == HookOutput(updated_input={"command": "ls"})
    assert parse_json_output("PostToolUse", {"hookSpecificOutput": {"updatedInput": {"command": "ls"}}}) == HookOutput()


def test_json_output_ends_the_run_with_a_message() -> None:
    value = {"continue": False, "stopReason": "enough", "systemMessage": "bye", "decision": "block"}
    assert parse_json_output("PostToolUse", value) == HookOutput(decision="stop", reason="enough", message="bye")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{", "not valid JSON"),
        ('{"a": }', "not valid JSON"),
        ("{" * 100_000, "not valid JSON"),
        ({"decision": "perhaps"}, "the decision is 'perhaps'"),
        ({"decision": ["block"]}, "the decision is ['block']"),
        ({"reason": 3}, "reason must be a text"),
        ({"hookSpecificOutput": []}, "hookSpecificOutput must be an object"),
        ({"hookSpecificOutput": {"hookEventName": "Stop"}}, "hookEventName is 'Stop', but the event is PreToolUse"),
        ({"hookSpecificOutput": {"updatedInput": "ls"}}, "updatedInput must be an object"),
        ({"hookSpecificOutput": {"additionalContext": {}}}, "additionalContext must be a text"),
    ],
)
def test_invalid_json_output_is_a_failure_with_a_reason(value: dict[str, Any] | str, words: str) -> None:
    output = value if isinstance(value, str) else json.dumps(value)
    parsed = parse_output("PreToolUse", ran(output=output))
    assert parsed.decision == "failed"
    assert words in parsed.reason


def test_long_output_is_cut() -> None:
    assert len(parse_output("Stop", ran(2, errors="x" * 3 * MAX_CHARACTERS)).reason) == MAX_CHARACTERS
    assert len(parse_output("SessionStart", ran(output="x" * 3 * MAX_CHARACTERS)).context) == MAX_CHARACTERS


@given(event=st.sampled_from(HOOK_EVENTS), exit_code=st.sampled_from([0, 1, 2, None]), output=st.text())
def test_nothing_that_a_hook_prints_raises(event: HookEvent, exit_code: int | None, output: str) -> None:
    for text in (output, "{" + output, json.dumps({"decision": output, "reason": output})):
        assert parse_output(event, ran(exit_code, text, output)).decision in ("none", "allow", "block", "failed")


def test_one_block_is_enough_and_ask_wins_over_allow() -> None:
    allows, asks = HookOutput(decision="allow"), HookOutput(decision="ask", reason="sure?")
    assert combine_outputs([allows, HookOutput(decision="block", reason="no"), asks]).objections == ("no",)
    together = combine_outputs([allows, asks, HookOutput(decision="failed", reason="oops")])
    assert (together.objections, together.vote, together.vote_reason) == ((), "ask", "sure?")
    assert combine_outputs([allows, HookOutput()]).vote == "allow"
    assert combine_outputs([HookOutput(decision="failed")]).vote is None


def test_last_changed_input_is_used() -> None:
    updates = [HookOutput(updated_input={"n": 1}), HookOutput(updated_input={"n": 2}), HookOutput()]
    assert combine_outputs(updates).updated_input == {"n": 2}
    assert combine_outputs([]).updated_input is None

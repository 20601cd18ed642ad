"""Matching of hooks with events."""

import pytest

from coterie.agents.hooks.hook import Hook, HookEvent, check_matcher, content_of, matches, matching_hooks


def hook(event: HookEvent, matcher: str, command: str, timeout: float = 60.0) -> Hook:
    return Hook(event=event, matcher=matcher, command=command, timeout=timeout, source="x")


@pytest.mark.parametrize(
    ("matcher", "subject", "is_meant"),
    [
        ("", "Bash", True),
        ("*", "Bash", True),
        ("Bash", "Bash", True),
        ("Bash", "BashOutput", False),
        ("bash", "Bash", False),
        ("Edit|Write", "Write", True),
        ("Edit|Write", "Rewrite", False),
        ("Task", "Agent", True),
        ("Agent", "Agent", True),
        ("Read|Task", "Agent", True),
        ("Task", "TaskUpdate", False),
        ("^Task$", "Agent", True),
        ("mcp__.*", "mcp__files__read", True),
        ("mcp__.*", "Read", False),
        ("Notebook.*", "NotebookEdit", True),
        ("^Bash", "BashOutput", True),
        ("(Edit|Write)$", "Edit", True),
    ],
)
def test_matcher_is_a_name_several_names_or_an_expression(matcher: str, subject: str, is_meant: bool) -> None:
    assert matches(matcher, subject) is is_meant


def test_invalid_expression_has_a_reason() -> None:
    assert check_matcher("Edit|Write") is None
    assert check_matcher("mcp__.*") is None
    assert "'(Bash' is not a regular expression" in (check_matcher("(Bash") or "")


def test_hooks_run_in_their_order_and_the_same_command_once() -> None:
    hooks = [
        hook("PreToolUse", "Edit", "other"),
        hook("PreToolUse", "Bash", "b"),
        hook("PostToolUse", "Bash", "after"),
        hook("PreToolUse", "", "a"),
        hook("PreToolUse", "*", "b"),
    ]
    assert [each.command for each in matching_hooks(hooks, "PreToolUse", "Bash")] == ["b", "a"]


def test_approved_content_covers_behavior_but_not_the_source() -> None:
    base = hook("Stop", "", "x")
    assert content_of([base]) == content_of([Hook(event="Stop", command="x", source="elsewhere")])
    others = [hook("Stop", "", "y"), hook("Stop", "a", "x"), hook("SubagentStop", "", "x"), hook("Stop", "", "x", 1.0)]
    assert len({content_of([base]), content_of([base, base]), *(content_of([each]) for each in others)}) == 6

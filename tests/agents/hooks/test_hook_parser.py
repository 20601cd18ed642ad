"""Parser of hooks, in which valid ones are used and every problem is reported, and the matching with events."""

from typing import Any

import pytest

from coterie.agents.hooks.hook import Hook, HookEvent, check_matcher, content_of, matches, matching_hooks
from coterie.agents.hooks.hook_parser import HookParser


def read(value: Any) -> tuple[tuple[Hook, ...], list[tuple[tuple[str | int, ...], str]]]:
    reader = HookParser("settings.json")
    hooks = reader.parse(value)
    return hooks, [(flaw.place, flaw.reason) for flaw in reader.problems]


def test_group_and_single_command_are_parsed() -> None:
    group = {"matcher": "Bash|Edit", "hooks": [{"type": "command", "command": "check", "timeout": 5}]}
    hooks, flaws = read({"PreToolUse": [group], "Stop": [{"command": "ring", "timeout": "7"}]})
    assert hooks == (
        Hook(event="PreToolUse", matcher="Bash|Edit", command="check", timeout=5.0, source="settings.json"),
        Hook(event="Stop", command="ring", timeout=7.0, source="settings.json"),
    )
    assert flaws == []


def test_all_problems_are_reported_and_valid_hooks_stay() -> None:
    hooks, flaws = read(
        {
            "PreToolUze": [],
            "Stop": {"hooks": []},
            "PreToolUse": [
                "echo",
                {"matcher": "(Bash", "hooks": [{"type": "command", "command": "x"}]},
                {"matcher": 3, "hooks": []},
                {"hooks": "echo"},
                {
                    "matcher": "Bash",
                    "hoooks": [],
                    "hooks": [
                        {"type": "prompt", "prompt": "is it good?"},
                        {"type": "command"},
                        {"type": "command", "command": " "},
                        {"type": "command", "command": "good", "timeout": -1, "timout": 3},
                        {"type": "command", "command": "x", "if": "Bash(git push:*)"},
                        7,
                    ],
                },
            ],
        }
    )
    assert [each.command for each in hooks] == ["good"]
    assert hooks[0].timeout == 60.0
    told = dict(flaws)
    assert "did you mean PreToolUse?" in told["PreToolUze",]
    assert told["Stop",] == "Stop must be a list, not a table"
    assert "with a matcher and hooks, not 'echo'" in told["PreToolUse", 0]
    assert "'(Bash' is not a regular expression" in told["PreToolUse", 1, "matcher"]
    assert told["PreToolUse", 2, "matcher"] == "matcher must be a text, not 3; the hooks with it do not run"
    assert told["PreToolUse", 3, "hooks"] == "hooks must be a list, not 'echo'"
    assert "did you mean hooks?" in told["PreToolUse", 4, "hoooks"]
    assert "'prompt' cannot run" in told["PreToolUse", 4, "hooks", 0, "type"]
    assert "needs a command" in told["PreToolUse", 4, "hooks", 1, "command"]
    assert "needs a command" in told["PreToolUse", 4, "hooks", 2, "command"]
    assert "seconds above 0 and at most 600" in told["PreToolUse", 4, "hooks", 3, "timeout"]
    assert "'if' is not supported, so this hook does not run" in told["PreToolUse", 4, "hooks", 4, "if"]
    assert "did you mean timeout?" in told["PreToolUse", 4, "hooks", 3, "timout"]
    assert "a table with a command, not 7" in told["PreToolUse", 4, "hooks", 5]
    assert len(flaws) == 14


def test_value_that_is_no_table_and_invalid_timeouts_are_problems() -> None:
    no_tables: tuple[Any, ...] = (None, [], "x", 3, True)
    for value in no_tables:
        hooks, [(place, reason)] = read(value)
        assert (hooks, place) == ((), ())
        assert reason.startswith("hooks must be a table of events")
    no_seconds: tuple[Any, ...] = (0, -1, True, "soon", 601, float("inf"), float("nan"), [], 10**400)
    for timeout in no_seconds:
        hooks, flaws = read({"Stop": [{"command": "x", "timeout": timeout}]})
        assert (hooks[0].timeout, len(flaws)) == (60.0, 1)


def test_events_of_other_products_are_listed_without_a_problem() -> None:
    reader = HookParser("settings.json")
    assert reader.parse({"UserPromptSubmit": [{"hooks": []}], "Notification": "anything"}) == ()
    assert (reader.elsewhere, reader.problems) == (["UserPromptSubmit", "Notification"], [])


def hook(event: HookEvent, matcher: str, command: str, timeout: float = 60.0) -> Hook:
    return Hook(event=event, matcher=matcher, command=command, timeout=timeout, source="x")


@pytest.mark.parametrize(
    ("matcher", "meant", "others"),
    [
        ("", "Bash", ""),
        ("*", "Bash", ""),
        ("Bash", "Bash", "BashOutput"),
        ("bash", "", "Bash"),
        ("Edit|Write", "Write", "Rewrite"),
        ("Task", "Agent", "TaskUpdate"),
        ("Agent", "Agent", ""),
        ("Read|Task", "Agent", ""),
        ("^Task$", "Agent", ""),
        ("mcp__.*", "mcp__files__read", "Read"),
        ("Notebook.*", "NotebookEdit", ""),
        ("^Bash", "BashOutput", ""),
        ("(Edit|Write)$", "Edit", ""),
    ],
)
def test_matcher_is_a_name_several_names_or_an_expression(matcher: str, meant: str, others: str) -> None:
    assert [name for name in f"{meant} {others}".split() if matches(matcher, name)] == meant.split()
    assert check_matcher(matcher) is None


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

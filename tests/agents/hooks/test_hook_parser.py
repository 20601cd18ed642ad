"""Parser of hooks: valid hooks are used, and every problem is reported."""

from typing import Any

import pytest

from coterie.agents.hooks.hook import Hook, HookParser


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


@pytest.mark.parametrize("value", [None, [], "x", 3, True])
def test_non_table_is_a_problem(value: Any) -> None:
    hooks, [(place, reason)] = read(value)
    assert (hooks, place) == ((), ())
    assert reason.startswith("hooks must be a table of events")


@pytest.mark.parametrize("timeout", [0, -1, True, "soon", 601, float("inf"), float("nan"), [], 10**400])
def test_invalid_timeout_is_a_problem(timeout: Any) -> None:
    hooks, flaws = read({"Stop": [{"command": "x", "timeout": timeout}]})
    assert hooks[0].timeout == 60.0
    assert len(flaws) == 1


def test_events_of_other_products_are_listed_without_a_problem() -> None:
    reader = HookParser("settings.json")
    assert reader.parse({"UserPromptSubmit": [{"hooks": []}], "Notification": "anything"}) == ()
    assert (reader.elsewhere, reader.problems) == (["UserPromptSubmit", "Notification"], [])

"""Hook files, the parser of hooks and of what they print, and the matching with events."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.hooks.hook import (
    HOOK_EVENTS,
    Hook,
    HookEvent,
    HookParser,
    check_matcher,
    content_of,
    matches,
    matching_hooks,
)
from coterie.agents.hooks.hook_files import approve_sources, hook_sources, select_hooks
from coterie.agents.hooks.registry import MAX_CHARACTERS, CommandResult, HookOutput, combine_outputs, parse_output
from coterie.agents.settings import HookSettings

FLAWED = """{
 "hooks": {
  "PreToolUze": [],
  "Stop": [
   {"hooks": [
    {"type": "command", "command": "good"},
    {"type": "command",
     "command": "slow", "timeout": -1}
   ]},
   {"matcher":
    "(x"}]
 }
}
"""


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.delenv("COTERIE_PROJECT_DIR", raising=False)
    for place in ("home", "claude", "project/.git", "project/.claude", "project/.coterie"):
        (tmp_path / place).mkdir(parents=True)
    return tmp_path / "project"


def write_json(path: Path, command: str, **besides: Any) -> None:
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}
    path.write_text(json.dumps({"permissions": {}, "hooks": hooks, **besides}))


def write_toml(path: Path, command: str) -> None:
    path.write_text(f'model = "opus"\n[[hooks.Stop]]\ncommand = "{command}"\n')


def commands(project: Path, settings: HookSettings | None = None) -> list[tuple[str, str]]:
    sources = hook_sources(project, settings or HookSettings(), project.parent / "managed.toml")
    return [(source.owner, hook.command) for source in sources for hook in source.hooks]


def write_all(project: Path) -> None:
    write_toml(project.parent / "managed.toml", "1")
    write_toml(project.parent / "home/settings.toml", "2")
    write_json(project.parent / "claude/settings.json", "3")
    write_json(project / ".claude/settings.json", "4")
    write_json(project / ".claude/settings.local.json", "5")
    write_toml(project / ".coterie/settings.toml", "6")
    write_toml(project / ".coterie/settings.local.toml", "7")


def test_hooks_of_all_files_are_combined_with_their_owner(project: Path) -> None:
    write_all(project)
    owners = ["machine", "user", "user", "project", "project", "project", "project"]
    assert commands(project) == list(zip(owners, "1234567", strict=True))
    (project / "deeper").mkdir()
    assert len(hook_sources(project / "deeper", HookSettings(), project.parent / "managed.toml")) == 7


def test_files_can_be_left_out_and_the_project_can_switch_off_only_its_own(project: Path) -> None:
    write_all(project)
    assert [command for _, command in commands(project, HookSettings(claude=False))] == ["1", "2", "6", "7"]
    write_json(project / ".claude/settings.local.json", "5", disableAllHooks=True)
    assert [command for _, command in commands(project)] == ["1", "2", "3", "6", "7"]
    write_json(project.parent / "claude/settings.json", "3", disableAllHooks=True)
    assert [command for _, command in commands(project)] == ["1", "2", "6", "7"]


def test_files_belong_to_the_user_if_the_project_is_the_home(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(project)
    monkeypatch.setenv("COTERIE_HOME", str(project / ".coterie"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(project / ".claude"))
    assert commands(project) == [("machine", "1"), ("user", "6"), ("user", "4"), ("project", "7")]


def test_problems_have_file_and_line_and_valid_hooks_stay(project: Path) -> None:
    (project / ".claude/settings.json").write_text(FLAWED)
    (project / ".coterie/settings.toml").write_text('model = "opus"\n\n[[hooks.Stopp]]\ncommand = "x"\n')
    claude, ours = hook_sources(project, HookSettings(), project / "none")
    assert [hook.command for hook in claude.hooks] == ["good", "slow"]
    path = project / ".claude/settings.json"
    assert [flaw.split(" ")[0] for flaw in claude.problems] == [f"{path}:3:", f"{path}:8:", f"{path}:10:"]
    assert ours.problems == (f"{project / '.coterie/settings.toml'}:3: unknown event 'Stopp'; did you mean Stop?",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "not a file of at most 1,000,000 bytes; its hooks do not run"),
        (b"{", "not valid JSON, so its hooks do not run: "),
        (b"[" * 100_000, "not valid JSON, so its hooks do not run: "),
        (b"[]", "must be a JSON object; its hooks do not run"),
        (b"\xff", "cannot be read, so its hooks do not run: "),
        (b'{"hooks": []}', "hooks must be a table of events, not a list"),
        (b" " * 1_000_001, "not a file of at most 1,000,000 bytes; its hooks do not run"),
    ],
)
def test_unreadable_file_is_one_problem_and_other_files_stay(project: Path, content: bytes | None, words: str) -> None:
    write_all(project)
    path = project / ".claude/settings.json"
    if content is None:
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(content)
    sources = hook_sources(project, HookSettings(), project.parent / "managed.toml")
    [flaw] = [flaw for source in sources for flaw in source.problems]
    assert flaw.startswith(str(project / ".claude/settings.json"))
    assert words in flaw
    assert len(commands(project)) == 6


def test_project_hooks_wait_for_the_approval_of_their_content(project: Path) -> None:
    write_all(project)

    def held() -> tuple[str, str, str | None]:
        found = select_hooks(project, hook_sources(project, HookSettings(), project.parent / "managed.toml"))
        running = "".join(hook.command for hook in found.hooks)
        waiting = "".join(hook.command for source in found.waiting for hook in source.hooks)
        return running, waiting, found.notice()

    running, waiting, notice = held()
    assert (running, waiting) == ("123", "4567")
    assert notice is not None
    assert "settings.local.toml (1 hook); review and approve them with `coterie hooks approve`" in notice
    sources = hook_sources(project, HookSettings(), project.parent / "managed.toml")
    approve_sources(project, [source for source in sources if source.owner == "project"])
    assert held() == ("1234567", "", None)
    write_json(project / ".claude/settings.json", "4 ")
    assert held()[:2] == ("123567", "4 ")


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


def ran(exit_code: int | None = 0, output: str = "", errors: str = "", failure: str = "") -> CommandResult:
    return CommandResult(exit_code=exit_code, output=output, errors=errors, seconds=0.1, failure=failure)


def parse_json_output(event: HookEvent, value: dict[str, Any]) -> HookOutput:
    return parse_output(event, ran(output=json.dumps(value)))


def test_exit_code_two_blocks_what_is_to_come_and_others_are_failures_of_the_hook() -> None:
    assert parse_output("PreToolUse", ran(2, "out", "no\n")) == HookOutput(decision="block", reason="no")
    assert parse_output("Stop", ran(2)).reason == "No reason was given."
    assert parse_output("PreToolUse", ran(127, errors="not found")) == HookOutput(decision="failed", reason="not found")
    assert parse_output("PreToolUse", ran(1)) == HookOutput(decision="failed", reason="exit code 1")
    past_events: tuple[HookEvent, ...] = ("SessionStart", "SessionEnd", "PostCompact")
    for past in past_events:
        assert parse_output(past, ran(2, errors="no")) == HookOutput(decision="failed", reason="no")
        assert parse_json_output(past, {"decision": "block", "reason": "no"}).decision == "failed"
    assert parse_output("PreToolUse", ran(None, failure="too long")) == HookOutput(decision="failed", reason="too long")


def test_plain_output_is_context_when_a_session_starts_and_else_nothing() -> None:
    assert parse_output("SessionStart", ran(output="It is Tuesday.\n")) == HookOutput(context="It is Tuesday.")
    assert parse_output("PreToolUse", ran(output="fine\n")) == HookOutput()
    assert len(parse_output("Stop", ran(2, errors="x" * 3 * MAX_CHARACTERS)).reason) == MAX_CHARACTERS
    assert len(parse_output("SessionStart", ran(output="x" * 3 * MAX_CHARACTERS)).context) == MAX_CHARACTERS


def test_json_output_decides_a_tool_call_or_ends_the_run() -> None:
    own = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no"}
    assert parse_json_output("PreToolUse", {"hookSpecificOutput": own}) == HookOutput(decision="block", reason="no")
    assert parse_json_output("PreToolUse", {"hookSpecificOutput": {"permissionDecision": "ask"}}).decision == "ask"
    assert parse_json_output("PreToolUse", {"decision": "approve"}).decision == "allow"
    changed = parse_json_output("PreToolUse", {"hookSpecificOutput": {"updatedInput": {"command": "ls"}}})
    assert changed == HookOutput(updated_input={"command": "ls"})
    assert parse_json_output("PostToolUse", {"hookSpecificOutput": {"updatedInput": {"command": "ls"}}}) == HookOutput()
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


@given(event=st.sampled_from(HOOK_EVENTS), exit_code=st.sampled_from([0, 1, 2, None]), output=st.text())
def test_nothing_that_a_hook_prints_raises(event: HookEvent, exit_code: int | None, output: str) -> None:
    for text in (output, "{" + output, json.dumps({"decision": output, "reason": output})):
        assert parse_output(event, ran(exit_code, text, output)).decision in ("none", "allow", "block", "failed")


def test_one_block_is_enough_ask_wins_over_allow_and_the_last_input_is_used() -> None:
    allows, asks = HookOutput(decision="allow"), HookOutput(decision="ask", reason="sure?")
    assert combine_outputs([allows, HookOutput(decision="block", reason="no"), asks]).objections == ("no",)
    together = combine_outputs([allows, asks, HookOutput(decision="failed", reason="oops")])
    assert (together.objections, together.vote, together.vote_reason) == ((), "ask", "sure?")
    assert combine_outputs([allows, HookOutput()]).vote == "allow"
    assert combine_outputs([HookOutput(decision="failed")]).vote is None
    updates = [HookOutput(updated_input={"n": 1}), HookOutput(updated_input={"n": 2}), HookOutput()]
    assert combine_outputs(updates).updated_input == {"n": 2}
    assert combine_outputs([]).updated_input is None

"""Hooks of a repository in real runs: real commands, real agents, the embedded server as the model."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.events.agent_events import HookRan
from coterie.agents.hooks.hook_files import approve_sources, hook_sources
from coterie.agents.settings import HookSettings
from coterie.orchestrator.events.session_reader import read_session
from tests.processes.project_shell import BYPASS, ProjectShell
from tests.processes.session_record import conversation

pytestmark = pytest.mark.slow


class HookProject(ProjectShell):
    """Project in which a test runs `coterie` with hooks."""

    def hook(self, *, is_approved: bool = True, **groups: list[dict[str, Any]]) -> None:
        """Write the hooks of *groups*, by event, into the project's settings file."""
        self.write(".claude/settings.json", json.dumps({"hooks": groups}))
        if is_approved:
            approve_sources(self.project, hook_sources(self.project, HookSettings(), self.project / "none"))

    def run(self, script: str, *options: str, mode: str = "bypassPermissions") -> dict[str, Any]:
        """Return the output of `coterie run` with *script*."""
        model = self.model(script)
        done = self.coterie("run", "Go.", "--permission-mode", mode, "--output-format", "json", *model, *options)
        assert done.stdout, done.stderr
        summary: dict[str, Any] = json.loads(done.stdout)
        return summary

    def messages_of(self, agent: str = "main") -> list[tuple[str, list[dict[str, Any]]]]:
        messages = conversation(self.session, agent).messages
        return [(message.role, [json.loads(block) for block in message.blocks]) for message in messages]

    def text_of(self, agent: str = "main") -> str:
        """Return all text of *agent*'s conversation, including results of its calls."""
        return "\n".join(self.texts(agent))

    def hooks(self, event: str | None = None) -> list[tuple[str, HookRan]]:
        """Return the runs of hooks with their agents."""
        runs = [(each.agent, each.event) for each in read_session(self.session.directory)]
        return [(agent, run) for agent, run in runs if isinstance(run, HookRan) and event in (None, run.event)]

    def given(self, name: str) -> dict[str, Any]:
        """Return the input of a hook that was saved in the file *name*."""
        value: dict[str, Any] = json.loads((self.project / name).read_text())
        return value


def group(command: str, matcher: str = "", **besides: Any) -> dict[str, Any]:
    return {"matcher": matcher, "hooks": [{"type": "command", "command": command, **besides}]}


def print_json_command(**members: Any) -> str:
    return f"echo {shlex.quote(json.dumps(members))}"


def at_most(path: Path, count: int, words: str) -> str:
    """Return a command that objects *count* times, with *words*; it counts in *path*."""
    file = shlex.quote(str(path))
    return (
        f"n=$(cat {file} 2>/dev/null || echo 0); echo $((n + 1)) > {file}; "
        f'if [ "$n" -lt {count} ]; then echo "{words} $n" >&2; exit 2; fi'
    )


@pytest.fixture
def place(project: Path) -> HookProject:
    """A repository with one file."""
    (project / ".git").mkdir()
    (project / "a.txt").write_text("a line\n")
    return HookProject(project)


CALLS = """
default:
  - tools: [{Bash: {command: "touch ran"}}, {Read: {file_path: a.txt}}]
  - text: "One"
  - text: "Two"
  - text: "Three"
  - text: "Four"
"""


def test_a_session_from_its_start_to_its_end(place: HookProject, tmp_path: Path) -> None:
    context = print_json_command(
        hookSpecificOutput={"hookEventName": "PostToolUse", "additionalContext": "Mind the gap."}
    )
    place.hook(
        SessionStart=[group("cat > start.json; echo It is Tuesday.", "startup"), group("echo not this", "resume")],
        PreToolUse=[group("cat > before.json; echo no touching >&2; exit 2", "Bash")],
        PostToolUse=[group(f"cat > after.json; {context}", "Edit|Read")],
        Stop=[group(at_most(tmp_path / "count", 2, "not yet"))],
        SessionEnd=[group("cat > end.json")],
    )
    summary = place.run(CALLS)
    assert (summary["reason"], summary["result"], summary["turns"]) == ("completed", "Three", 4)
    assert not (place.project / "ran").exists()

    first, _, results, _, *rest = place.messages_of()
    texts = [block["text"] for block in first[1]]
    assert texts[-2:] == ['<hook event="SessionStart">\nIt is Tuesday.\n</hook>', "Go."]
    denied, read, remark = results[1]
    assert denied["is_error"]
    assert denied["content"][0]["text"] == "A hook of the user denied this call: no touching"
    assert "is_error" not in read
    assert remark["text"] == '<hook event="PostToolUse">\nMind the gap.\n</hook>'
    assert [role for role, _ in rest] == ["user", "assistant", "user", "assistant"]
    assert "not yet 0" in rest[0][1][0]["text"]
    assert "not yet 1" in rest[2][1][0]["text"]

    common = {"session_id": summary["session_id"], "transcript_path": summary["transcript"]}
    common |= {"cwd": str(place.project), "permission_mode": "bypassPermissions"}
    start, before, after, end = (place.given(f"{name}.json") for name in ("start", "before", "after", "end"))
    assert start == {**common, "hook_event_name": "SessionStart", "source": "startup"}
    assert end == {**common, "hook_event_name": "SessionEnd", "reason": "completed"}
    call = {"tool_name": "Bash", "tool_input": {"command": "touch ran"}, "tool_use_id": denied["tool_use_id"]}
    assert before == {**common, "hook_event_name": "PreToolUse", **call}
    assert after["tool_response"] == {"text": "     1\ta line", "is_error": False, "filePath": "a.txt"}

    assert [(run.event, run.decision, run.exit_code) for _, run in place.hooks()] == [
        ("SessionStart", "none", 0),
        ("PreToolUse", "block", 2),
        ("PostToolUse", "none", 0),
        ("Stop", "block", 2),
        ("Stop", "block", 2),
        ("Stop", "none", 0),
        ("SessionEnd", "none", 0),
    ]
    logs = " ".join(place.coterie("logs").stdout.split())
    assert "PreToolUse of Bash" in logs
    assert "blocked it: no touching" in logs


TREE = """
main:
  - tools: [{Agent: {subagent_type: worker, name: hand, description: work, prompt: Work.}}]
  - tools: [{Agent: {subagent_type: fork, name: twin, description: work, prompt: Work too.}}]
  - text: "I wait."
  - text: "It is done."
hand:
  - tools: [{Bash: {command: "touch by-hand"}}]
  - text: "First."
  - text: "Second."
twin:
  - tools: [{Bash: {command: "touch by-twin"}}]
  - text: "First."
  - text: "Second."
"""


def test_subagents_and_forks_have_the_same_hooks(place: HookProject, tmp_path: Path) -> None:
    place.hook(
        PreToolUse=[group("cat > before-$RANDOM.json; echo not you >&2; exit 2", "Bash")],
        SubagentStop=[
            group(f"cat > hand.json; {at_most(tmp_path / 'hand', 1, 'go on')}", "worker"),
            group(f"cat > twin.json; {at_most(tmp_path / 'twin', 1, 'go on')}", "fork"),
        ],
        Stop=[group("cat > stop.json")],
    )
    summary = place.run(TREE)
    assert (summary["reason"], summary["result"]) == ("completed", "It is done.")
    for name, kind in (("hand", "worker"), ("twin", "fork")):
        assert not (place.project / f"by-{name}").exists()
        assert "A hook of the user denied this call: not you" in place.text_of(name)
        assert "go on 0" in place.text_of(name)
        assert place.messages_of(name)[-1] == ("assistant", [{"type": "text", "text": "Second."}])
        given = place.given(f"{name}.json")
        assert (given["agent_id"], given["agent_type"], given["stop_hook_active"]) == (name, kind, True)
        assert given["agent_transcript_path"] == given["transcript_path"]
    assert "agent_id" not in place.given("stop.json")
    assert {agent for agent, _ in place.hooks("SubagentStop")} == {"hand", "twin"}
    assert {agent for agent, _ in place.hooks("Stop")} == {"main"}


TEAM = """
main:
  - tools: [{TaskCreate: {subject: mend it, description: all of it}}]
  - tools: [{Agent: {subagent_type: worker, name: mate, description: work, prompt: Mend., stays: true}}]
  - text: "I wait."
  - text: "I heard {{last_user_text}}"
    times: always
mate:
  - tools: [{TaskUpdate: {task_id: 1, status: done}}]
  - tools: [{TaskUpdate: {task_id: 1, status: done}}]
  - text: "I am idle."
  - tools: [{SendMessage: {to: main, message: "I went on."}}]
  - text: "Now I am."
"""


def test_teammate_and_task_wait_for_the_agreement_of_hooks(place: HookProject, tmp_path: Path) -> None:
    place.hook(
        TeammateIdle=[group(f"cat > idle.json; {at_most(tmp_path / 'idle', 1, 'tell the lead')}")],
        TaskCompleted=[group(f"cat > task.json; {at_most(tmp_path / 'task', 1, 'run the tests')}")],
    )
    summary = place.run(TEAM)
    assert summary["reason"] == "completed"
    assert "I went on." in summary["result"]
    words = place.text_of("mate")
    assert "The task is not done yet, so nothing was changed. Complete it first: run the tests 0" in words
    assert "Task 1 is now [done" in words
    assert "tell the lead 0" in words
    idle, task = place.given("idle.json"), place.given("task.json")
    assert (idle["teammate_name"], idle["agent_id"]) == ("mate", "mate")
    assert (task["task_id"], task["task_subject"], task["task_description"]) == ("1", "mend it", "all of it")
    assert [run.decision for _, run in place.hooks("TaskCompleted")] == ["block", "none"]
    assert [agent for agent, _ in place.hooks("TeammateIdle")][:2] == ["mate", "mate"]


VOTES = """
default:
  - tools:
      - Bash: {command: "echo allowed"}
      - Bash: {command: "touch denied"}
      - Bash: {command: "echo before"}
      - Bash: {command: "echo asked"}
  - text: "done"
"""
VOTE = """
import json, sys
call = json.load(sys.stdin)["tool_input"]["command"]
own = {"hookEventName": "PreToolUse", "permissionDecision": "ask" if "asked" in call else "allow"}
if "before" in call:
    own["updatedInput"] = {"command": "echo after"}
print(json.dumps({"hookSpecificOutput": own}))
"""


USER_SETTINGS = """
[permissions]
deny = ["Bash(touch:*)"]
[[hooks.PreToolUse]]
matcher = "Bash"
command = "env > environment; pwd > where"
"""


def test_hook_can_approve_a_call_but_not_a_denied_one(place: HookProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks of the user need no approval, and no hook gets a key."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a secret")
    (place.project.parent / "vote.py").write_text(VOTE)
    place.hook(PreToolUse=[group("python3 ../vote.py", "Bash")])
    place.write("../home/settings.toml", USER_SETTINGS)
    assert place.run(VOTES, mode="default")["reason"] == "completed"
    _, calls, results, _ = place.messages_of()
    allowed, denied, changed, asked = ("\n".join(p["text"] for p in block["content"]) for block in results[1])
    assert allowed == "allowed"
    assert denied == "The rule Bash(touch:*) denies this call."
    assert not (place.project / "denied").exists()
    assert changed == "after"
    assert calls[1][2]["input"] == {"command": "echo before"}, "what the model sent stays as it is"
    assert "a hook asks for it" in asked
    assert "there is no user to ask" in asked
    [change] = [run.changed_input for _, run in place.hooks() if run.changed_input]
    assert json.loads(change) == {"command": "echo after"}
    environment = (place.project / "environment").read_text()
    assert f"CLAUDE_PROJECT_DIR={place.project}\n" in environment
    assert "COTERIE_AGENT=main" in environment
    assert "ANTHROPIC" not in environment
    assert "COTERIE_PROJECT_DIR" not in environment, "that is the name of a directory in the project"
    assert (place.project / "where").read_text() == f"{place.project}\n"


KIND = """---
name: scribe
description: Writes.
hooks:
  PreToolUse:
    - matcher: Bash
      hooks:
        - {type: command, command: "echo not a scribe >&2; exit 2"}
  Stop:
    - hooks:
        - type: command
          command: cat > scribe.json
---
You write.
"""
KINDS = """
main:
  - tools: [{Agent: {subagent_type: scribe, name: hand, description: work, prompt: Write.}}]
  - tools: [{Bash: {command: "touch by-lead"}}]
  - text: "It is done."
hand:
  - tools: [{Bash: {command: "touch by-hand"}}]
  - text: "Written."
"""


def test_hooks_of_an_agent_type_run_only_for_its_agents(place: HookProject) -> None:
    place.write(".claude/agents/scribe.md", KIND)
    assert place.coterie("hooks", "approve", "--yes").returncode == 0
    assert place.run(KINDS)["result"] == "It is done."
    assert (place.project / "by-lead").exists()
    assert not (place.project / "by-hand").exists()
    given = place.given("scribe.json")
    assert (given["hook_event_name"], given["agent_type"]) == ("SubagentStop", "scribe")
    assert {agent for agent, _ in place.hooks()} == {"hand"}


def test_hooks_end_with_a_session_that_is_killed(place: HookProject) -> None:
    """The agent that owns the hook dies with the root, so the cleanup daemon must end it."""
    place.hook(PreToolUse=[group("echo $$ > pid.new; mv pid.new pid; sleep 1000", "Bash", timeout=600)])
    options = (*BYPASS, *place.model(CALLS))
    with place.start("run", "Go.", *options) as process:
        assert place.becomes_true((place.project / "pid").exists)
        pid = int((place.project / "pid").read_text())
        place.kill_root()
        process.communicate(timeout=60)
    assert place.becomes_true(lambda: not Path(f"/proc/{pid}").exists())
    assert place.becomes_true(place.has_no_processes)

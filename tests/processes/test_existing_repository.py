"""A repository with files of another coding agent: they are used after its user has approved them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.agents.events.agent_events import HookRan, Noticed, RunStarted, ToolEnded
from coterie.agents.events.event_reader import SessionEvent
from coterie.agents.events.layer_events import SkillLoaded
from coterie.agents.events.root_events import McpChanged
from coterie.orchestrator.events.session_reader import read_session
from coterie.session_directory import SessionDirectory
from tests.agents.sandbox.sandboxed_workspace import needs
from tests.orchestrator.supervisor.git_repositories import make_repository
from tests.processes.project_shell import BYPASS, ProjectShell
from tests.processes.session_record import conversation, texts

pytestmark = pytest.mark.slow

GUARD = """\
import json, sys
call = json.load(sys.stdin)
if "--force" in call["tool_input"].get("command", ""):
    print("We never push by force.", file=sys.stderr)
    sys.exit(2)
"""
FILES = {
    "AGENTS.md": "Use tabs in Makefiles.\n",
    "CLAUDE.md": "Tests come first.\n@docs/style.md\n",
    "docs/style.md": "Names before comments.\n",
    ".claude/agents/reviewer.md": """\
---
name: reviewer
description: Use when: a change is ready to be read
tools: Read, Grep, Bash, mcp__time__get_current_time
model: sonnet
color: purple
---
You read changes.
""",
    ".claude/skills/release/SKILL.md": """\
---
name: release
description: How to release. Use before every release.
---
Tag $ARGUMENTS, then write down when.
""",
    ".claude/settings.json": json.dumps(
        {
            "permissions": {"allow": ["Bash(git status:*)"]},
            "hooks": {
                "SessionStart": [{"hooks": [{"type": "command", "command": "echo The build is green."}]}],
                "PreToolUse": [
                    {"matcher": "Bash", "hooks": [{"type": "command", "command": f"{sys.executable} .claude/guard.py"}]}
                ],
                "SubagentStop": [{"hooks": [{"type": "command", "command": "true"}]}],
            },
        }
    ),
    ".claude/guard.py": GUARD,
    ".mcp.json": json.dumps(
        {"mcpServers": {"time": {"command": sys.executable, "args": ["-P", "-m", "mcp_server_time"]}}}
    ),
    "app.py": "print('hello')\n",
}
SCRIPT = """
main:
  - tools: [{Skill: {skill: release, args: v1.2}}]
  - tools: [{Bash: {command: "git push --force origin main"}}]
  - tools: [{mcp__time__get_current_time: {timezone: Europe/Paris}}]
  - tools: [{Agent: {description: read it, prompt: "Read app.py.", name: reader, subagent_type: reviewer}}]
  - tools: [{Bash: {command: "echo released > RELEASE; echo x > ../outside; true"}}]
  - text: Released.
reader:
  - tools: [{mcp__time__get_current_time: {timezone: Europe/Paris}}]
  - tools: [{Bash: {command: "git push --force"}}]
  - text: It is fine.
"""


@pytest.fixture
def place(tmp_path: Path, home: Path, runtime: Path) -> ProjectShell:
    """The repository, and a user who has never run anything in it."""
    del home, runtime
    place = ProjectShell(make_repository(tmp_path / "project"))
    for name, text in FILES.items():
        place.write(name, text)
    _git(place.project, "add", "--all")
    _git(place.project, "commit", "--quiet", "--message", "As it is used")
    return place


def test_hooks_and_servers_of_a_repository_do_not_run_unapproved(place: ProjectShell) -> None:
    done = place.coterie("run", "-p", "Go.", *BYPASS, *place.model("main: [Done.]"))
    assert (done.returncode, done.stdout) == (0, "Done.\n")
    assert "coterie hooks approve" in done.stderr
    assert "coterie mcp approve time" in done.stderr
    assert place.events(HookRan) + place.events(McpChanged) == []
    assert "The build is green." not in _conversation_text(place.session)


def test_all_files_of_a_repository_work_in_one_run(place: ProjectShell) -> None:
    needs("landlock")
    assert place.coterie("hooks", "approve", "--yes").returncode == 0
    assert place.coterie("mcp", "approve", "time").returncode == 0
    options = (*BYPASS, "--sandbox", "landlock", *place.model(SCRIPT))
    done = place.coterie("run", "-p", "Release it.", *options)
    assert (done.returncode, done.stdout) == (0, "Released.\n"), done.stderr
    observed, told = list(read_session(place.session.directory)), _conversation_text(place.session)
    for text in ("Use tabs in Makefiles.", "Tests come first.", "Names before comments.", "The build is green."):
        assert text in told
    assert "release: How to release." in told  # listed
    assert "Tag v1.2, then write down when." in told  # and loaded
    assert [each.event.name for each in observed if isinstance(each.event, SkillLoaded)] == ["release"]
    assert "We never push by force." in told
    assert '"timezone": "Europe/Paris"' in told
    assert [each.event.state for each in observed if isinstance(each.event, McpChanged)] == ["connected"]
    assert (place.project / "RELEASE").read_text() == "released\n"
    assert not (place.project.parent / "outside").exists()
    _check_reviewer(observed, _conversation_text(place.session, "reader"))
    assert _git(place.project, "status", "--porcelain") == "?? RELEASE\n"
    assert place.coterie("doctor").returncode == 0


def _check_reviewer(observed: list[SessionEvent], told: str) -> None:
    """Check that an agent of the repository's type has its MCP server, hooks and definition."""
    [started] = [each.event for each in observed if each.agent == "reader" and isinstance(each.event, RunStarted)]
    assert "sonnet" in started.model
    assert "You read changes." in told
    assert '"timezone": "Europe/Paris"' in told
    assert "We never push by force." in told
    calls = [each.event for each in observed if each.agent == "reader" and isinstance(each.event, ToolEnded)]
    assert [(call.name, call.is_error) for call in calls] == [("mcp__time__get_current_time", False), ("Bash", True)]
    assert [each for each in observed if isinstance(each.event, HookRan) and each.event.event == "SubagentStop"]
    assert not [each for each in observed if isinstance(each.event, Noticed) and ".claude/agents" in each.event.source]


def _conversation_text(session: SessionDirectory, agent: str = "main") -> str:
    """Return the whole conversation of *agent*, including its system prompt."""
    return "\n".join((conversation(session, agent).prefix_bytes().decode(), *texts(session, agent)))


def _git(project: Path, *arguments: str) -> str:
    command = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments)
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=True).stdout

"""Project with hooks, and the results of a real run in it."""

import json
import shlex
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.events.agent_events import Event, HookRan
from coterie.agents.hooks.hook_files import approve_sources, hook_sources
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.settings import HookSettings
from coterie.orchestrator.events.session_reader import read_session
from coterie.session_directory import TRANSCRIPT
from tests.processes.project_shell import ProjectShell


@attrs.frozen
class HookProject(ProjectShell):
    """Project in which a test runs `coterie` with hooks."""

    def hook(self, *, is_approved: bool = True, **groups: list[dict[str, Any]]) -> None:
        """Write the hooks of *groups*, by event, into the project's settings file."""
        (self.project / ".claude").mkdir(exist_ok=True)
        (self.project / ".claude/settings.json").write_text(json.dumps({"hooks": groups}))
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
        """Return the messages of *agent*."""
        conversation = load_transcript(self.session.agent_directory(agent) / TRANSCRIPT).conversation
        assert conversation is not None
        return [(message.role, [json.loads(block) for block in message.blocks]) for message in conversation.messages]

    def text_of(self, agent: str = "main") -> str:
        """Return all text of *agent*'s conversation, including results of its calls."""
        return "\n".join(_text(block) for _, blocks in self.messages_of(agent) for block in blocks)

    def events(self) -> list[tuple[str, Event]]:
        """Return all events of the session with their agents."""
        observed = read_session(self.session.directory)
        return [(each.agent, each.event) for each in observed if each.event is not None]

    def hooks(self, event: str | None = None) -> list[tuple[str, HookRan]]:
        """Return the runs of hooks with their agents."""
        runs = [(agent, each) for agent, each in self.events() if isinstance(each, HookRan)]
        return [(agent, each) for agent, each in runs if event in (None, each.event)]

    def given(self, name: str) -> dict[str, Any]:
        """Return the input of a hook that was saved in the file *name*."""
        value: dict[str, Any] = json.loads((self.project / name).read_text())
        return value


def group(command: str, matcher: str = "", **besides: Any) -> dict[str, Any]:
    """Return a group with one command."""
    return {"matcher": matcher, "hooks": [{"type": "command", "command": command, **besides}]}


def print_json_command(**members: Any) -> str:
    """Return a command that prints *members* as JSON."""
    return f"echo {shlex.quote(json.dumps(members))}"


def _text(block: dict[str, Any]) -> str:
    if block["type"] == "tool_result":
        return "\n".join(part.get("text", "") for part in block["content"])
    return str(block.get("text", ""))


def at_most(path: Path, count: int, words: str) -> str:
    """Return a command that objects *count* times, with *words*; it counts in *path*."""
    file = shlex.quote(str(path))
    return (
        f"n=$(cat {file} 2>/dev/null || echo 0); echo $((n + 1)) > {file}; "
        f'if [ "$n" -lt {count} ]; then echo "{words} $n" >&2; exit 2; fi'
    )

"""Hooks for an agent of a test: real commands, in the test's directory."""

import os
from pathlib import Path

from coterie.agents.agent import Agent
from coterie.agents.hooks.hook import Hook, HookEvent
from coterie.agents.hooks.hooks import Hooks


def hooks_of(agent: Agent, directory: Path, **commands: str) -> Hooks:
    """Hooks with *commands*, by event, that tell as the agent does by now."""
    events: dict[str, HookEvent] = {"pre_compact": "PreCompact", "post_compact": "PostCompact"}
    return Hooks(
        hooks=tuple(Hook(event=events[name], command=command, source="the test") for name, command in commands.items()),
        facts=lambda: {"session_id": "s"},
        directory=directory,
        environment=dict(os.environ),
        tell=agent.tell,
    )

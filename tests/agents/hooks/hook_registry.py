"""Hook registry of an agent in a test, with real commands."""

import os
from pathlib import Path

from coterie.agents.hooks.hook import Hook, HookEvent
from coterie.agents.hooks.registry import HookRegistry
from coterie.agents.loop.agent import Agent


def make_hooks(agent: Agent, directory: Path, **commands: str) -> HookRegistry:
    """Return hooks with *commands* by event; their events go to the log of *agent*."""
    events: dict[str, HookEvent] = {"pre_compact": "PreCompact", "post_compact": "PostCompact"}
    return HookRegistry(
        hooks=tuple(Hook(event=events[name], command=command, source="the test") for name, command in commands.items()),
        facts=lambda: {"session_id": "s"},
        directory=directory,
        environment=dict(os.environ),
        emit=agent.emit,
    )

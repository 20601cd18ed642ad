"""Hook registry of an agent in a test, with real commands."""

import os
from pathlib import Path

from coterie.agents.hooks.hook import Hook, HookEvent
from coterie.agents.hooks.registry import HookRegistry
from coterie.agents.loop.agent import Agent


def make_hooks(agent: Agent, directory: Path, *hooks: tuple[HookEvent, str, str]) -> HookRegistry:
    """Return *hooks*: event, matcher and command of each; their events go to the log of *agent*."""
    return HookRegistry(
        hooks=tuple(Hook(event=event, matcher=matcher, command=word, source="x") for event, matcher, word in hooks),
        facts=lambda: {"session_id": "s"},
        directory=directory,
        environment=dict(os.environ),
        emit=agent.emit,
    )

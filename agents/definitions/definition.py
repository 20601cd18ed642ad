"""Agent definition: an agent type, as a file defines it."""

from pathlib import Path
from typing import Literal

import attrs

from coterie.agents.hooks.hook import Hook
from coterie.agents.loop.model.catalog import Effort
from coterie.agents.mcp.server_config import ServerConfig
from coterie.agents.permissions.types import Mode
from coterie.agents.root_link.spawn_request import Isolation, MemoryScope, Process

Scope = Literal["built-in", "user", "claude", "project"]
"""Whose definition it is, from the weakest to the strongest."""


@attrs.frozen(kw_only=True)
class AgentDefinition:
    """A kind of agent: when to use it, what it may use, and what it is told."""

    name: str
    """Free text of one line: make it safe before it becomes part of a path."""
    description: str
    """When to use it, in words for the model that delegates."""
    prompt: str
    tools: tuple[str, ...] | None = None
    """What it may call, as rules: `Read`, `Bash(git:*)`. None is everything."""
    disallowed_tools: tuple[str, ...] = ()
    """What it may not call, even if *tools* has it."""
    model: str | None = None
    """An id or alias; None is the model of whoever starts it."""
    effort: Effort | None = None
    """How hard its model tries; None is that of whoever starts it."""
    permission_mode: Mode | None = None
    max_turns: int | None = None
    skills: tuple[str, ...] = ()
    """Names of those that it begins with."""
    memory: MemoryScope | None = None
    """Where it keeps what it learns; None keeps nothing."""
    background: bool = False
    """Whether it is started without waiting for its report."""
    process: Process = "own"
    """A process of its own, or a task in that of whoever starts it."""
    isolation: Isolation | None = None
    """A worktree of its own to work in; None is the directory of whoever starts it."""
    hooks: tuple[Hook, ...] = ()
    """What runs when something happens to an agent of this kind."""
    mcp_servers: tuple[str, ...] | None = None
    """The only MCP servers that it may use; None is all that are there for everyone."""
    own_servers: tuple[ServerConfig, ...] = ()
    """Those of them that its file configures, for agents of this kind alone."""
    color: str | None = None
    """On a terminal, as `#rrggbb`."""
    initial_prompt: str | None = None
    """What it is told before the user's words, if it is the lead; without any, its task."""
    scope: Scope
    source: Path | None = None

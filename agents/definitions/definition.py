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
"""Origin of a definition, from the weakest to the strongest."""


@attrs.frozen(kw_only=True)
class AgentDefinition:
    """An agent type: its purpose, its tools and its prompt."""

    name: str
    """One line of arbitrary text; must be escaped before use in a path."""
    description: str
    """Purpose of the agent type, as a text for the model that delegates."""
    prompt: str
    tools: tuple[str, ...] | None = None
    """Tools that the agent may call, as rules: `Read`, `Bash(git:*)`; None for all tools."""
    disallowed_tools: tuple[str, ...] = ()
    """Tools that the agent may not call, even if *tools* contains them."""
    model: str | None = None
    """Model id or alias; None for the model of the parent."""
    effort: Effort | None = None
    """Effort of the model; None for that of the parent."""
    permission_mode: Mode | None = None
    max_turns: int | None = None
    skills: tuple[str, ...] = ()
    """Names of the skills that are loaded at the start."""
    memory: MemoryScope | None = None
    """Scope of the agent's memory; None for no memory."""
    background: bool = False
    """True if the parent does not wait for the report."""
    process: Process = "own"
    """"own" for a separate process, "shared" for a task in the process of the parent."""
    isolation: Isolation | None = None
    """"worktree" for a separate git worktree; None for the directory of the parent."""
    hooks: tuple[Hook, ...] = ()
    """Hooks for the events of agents of this type."""
    mcp_servers: tuple[str, ...] | None = None
    """Only MCP servers that the agent may use; None for all shared servers."""
    own_servers: tuple[ServerConfig, ...] = ()
    """Servers that the definition file configures for agents of this type only."""
    color: str | None = None
    """Color on a terminal, as `#rrggbb`."""
    initial_prompt: str | None = None
    """Text before the user's first message, if the agent is the lead; without a message, the task."""
    scope: Scope
    source: Path | None = None

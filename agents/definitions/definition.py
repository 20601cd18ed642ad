"""Agent definition: the properties of one agent type, such as `reviewer`, as parsed from its Markdown file."""

from pathlib import Path
from typing import Literal

import attrs

from coterie.agents.hooks.hook import Hook
from coterie.agents.loop.model.catalog import Effort
from coterie.agents.mcp.server_config import ServerConfig
from coterie.agents.permissions.types import Mode
from coterie.agents.root_link.spawn_request import Isolation, MemoryScope, Process

Scope = Literal["built-in", "user", "claude", "project"]
"""Place of a definition, weakest first: a definition replaces others of the same name from weaker places."""


@attrs.frozen(kw_only=True)
class AgentDefinition:
    """Definition of one agent type: purpose, prompt, tools, model and limits of the agents of this type."""

    name: str
    """Name of the agent type: one line of any printable text. Escape it before use in a file path."""
    description: str
    """Purpose of the agent type, for the model that chooses an agent type when it delegates a task."""
    prompt: str
    tools: tuple[str, ...] | None = None
    """The only tools that the agent may call, as rules: `Read`, `Bash(git:*)`; None for all tools."""
    disallowed_tools: tuple[str, ...] = ()
    """Tools that the agent may not call, even if *tools* contains them; also as rules."""
    model: str | None = None
    """Model id or alias; None for the parent agent's model or, for the first agent, the model in the settings."""
    effort: Effort | None = None
    """Reasoning effort of the model; None for the parent agent's or, for the first agent, that in the settings."""
    permission_mode: Mode | None = None
    max_turns: int | None = None
    skills: tuple[str, ...] = ()
    """Names of the skills (stored instructions) whose texts the agent gets with its first message."""
    memory: MemoryScope | None = None
    """Memory of the type, shared by a user's projects, a project's users, or neither ("local"); None: no memory."""
    background: bool = False
    """True if the parent continues its work without waiting for the agent's report."""
    process: Process = "own"
    """"own" for a separate process, "shared" for a task in the process of the parent."""
    isolation: Isolation | None = None
    """"worktree" if the agent works in a separate git worktree; None for the directory of the parent."""
    hooks: tuple[Hook, ...] = ()
    """Commands of the user that run at events of agents of this type, such as before a tool call."""
    mcp_servers: tuple[str, ...] | None = None
    """Names of the only MCP servers that the agent may use; None for all servers not reserved for other types."""
    own_servers: tuple[ServerConfig, ...] = ()
    """MCP servers that the definition file configures for agents of this type only."""
    color: str | None = None
    """Color of the agent's name on a terminal, as `#rrggbb`; None if the definition sets no color."""
    initial_prompt: str | None = None
    """Text before the user's task, for the first agent of a session; if the user gives no task, it is the task."""
    scope: Scope
    source: Path | None = None

"""Permissions of an agent for tool calls, from its settings and the definition of its agent type."""

from collections.abc import Iterable, Sequence

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.definitions.list_fields import bare_name
from coterie.agents.mcp.tool_list_file import ListedTool
from coterie.agents.mcp.tool_names import PREFIX, server_of
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.rules import RoleLimit, Rule
from coterie.agents.settings import Settings
from coterie.agents.tools.files.edit import Edit
from coterie.agents.tools.files.notebook_edit import NotebookEdit
from coterie.agents.tools.team.control_tools import ExitPlanMode
from coterie.agents.tools.team.send_message import SendMessage
from coterie.agents.tools.team.task_tools import TASK_TOOLS


def server_limits(definition: AgentDefinition | None, listed: Sequence[ListedTool]) -> tuple[RoleLimit, ...]:
    """Return limits that deny MCP tools for other agent types, and of servers not in `mcp_servers` of *definition*."""
    foreign = frozenset(
        tool.name for tool in listed if tool.kinds is not None and (definition and definition.name) not in tool.kinds
    )
    limits = []
    if foreign:
        reason = "Only other agent types may use this MCP server. Use another tool, or start such an agent."
        limits.append(RoleLimit(name="mcp", reason=reason, denied=foreign))
    if definition is not None and definition.mcp_servers is not None:
        others = frozenset(tool.name for tool in listed if tool.server not in definition.mcp_servers)
        reason = f"Agents of the type {definition.name} may not use this MCP server. Use another tool."
        limits.append(RoleLimit(name=definition.name, reason=reason, denied=others))
    return tuple(limits)


def tools_allowed_by(definition: AgentDefinition) -> tuple[str, ...]:
    """Return `mcp__NAME` (all tools of a server) for each server in `mcp_servers` of which `tools` lists no tool."""
    named = {server_of(entry) for entry in definition.tools or ()}
    return tuple(f"{PREFIX}{server}" for server in definition.mcp_servers or () if server not in named)


TEAM_TOOLS = (SendMessage.name, *TASK_TOOLS)
"""Names of message and task tools, which a teammate may use even if the `tools` of its definition omit them."""


def effective_permissions(
    settings: Settings, definition: AgentDefinition | None, *, is_teammate: bool = False
) -> Permissions:
    """Return an agent's permissions by *settings* and *definition*, which for a teammate need not allow `TEAM_TOOLS`.

    Raises `ConfigInvalid` for an invalid rule.
    """
    return Permissions(
        mode=settings.permissions.mode,
        allow=_rules(settings, "allow"),
        ask=_rules(settings, "ask"),
        deny=(
            *_rules(settings, "deny"),
            *(_rules_with_arguments(definition.disallowed_tools, definition) if definition else ()),
        ),
        limits=() if definition is None else (_role_limit(definition, TEAM_TOOLS if is_teammate else ()),),
    )


def _role_limit(definition: AgentDefinition, extra_tools: Sequence[str]) -> RoleLimit:
    """Return the limit to *extra_tools* and a type's `tools`, or parts such as `Bash(make:*)`; no rule can widen it."""
    whole = {entry for entry in definition.tools or () if "(" not in entry}
    also = (ExitPlanMode.name, *tools_allowed_by(definition), *extra_tools)
    denied = {entry for entry in definition.disallowed_tools if "(" not in entry}
    # A definition that denies Edit also denies edits of notebooks.
    denied |= {NotebookEdit.name} if Edit.name in denied else set()
    return RoleLimit(
        name=definition.name,
        reason=f"Agents of the type {definition.name} may not do this. Use another tool.",
        # An agent in plan mode has to submit its plan; outside of plan mode the tool does nothing.
        allowed=None if definition.tools is None else frozenset((*map(bare_name, definition.tools), *also)),
        denied=frozenset(denied),
        only=tuple(
            rule for rule in _rules_with_arguments(definition.tools or (), definition) if rule.tool not in whole
        ),
    )


def _rules_with_arguments(entries: Iterable[str], definition: AgentDefinition) -> tuple[Rule, ...]:
    return tuple(Rule.parse(entry, str(definition.source or definition.name)) for entry in entries if "(" in entry)


def _rules(settings: Settings, name: str) -> tuple[Rule, ...]:
    texts: tuple[str, ...] = getattr(settings.permissions, name)
    sources = settings.item_sources(f"permissions.{name}")
    return tuple(Rule.parse(text, source) for text, source in zip(texts, sources, strict=True))

"""Which tools of MCP servers an agent may call because of its kind; the others are denied, and stay in the request."""

from collections.abc import Sequence

from coterie.agents.definitions import Definition
from coterie.agents.mcp.listing import ListedTool
from coterie.agents.mcp.naming import PREFIX, server_of
from coterie.agents.permissions import RoleLimit


def server_limits(kind: Definition | None, listed: Sequence[ListedTool]) -> tuple[RoleLimit, ...]:
    """What an agent of *kind* may not call: servers that its definition leaves out, or that other kinds have."""
    foreign = frozenset(
        tool.name for tool in listed if tool.kinds is not None and (kind and kind.name) not in tool.kinds
    )
    limits = []
    if foreign:
        reason = "This MCP server is there for agents of another kind alone, whose definition configures it."
        limits.append(RoleLimit(name="mcp", reason=reason, denied=foreign))
    if kind is not None and kind.mcp_servers is not None:
        others = frozenset(tool.name for tool in listed if tool.server not in kind.mcp_servers)
        reason = f"An agent of the kind {kind.name} may not use this MCP server."
        limits.append(RoleLimit(name=kind.name, reason=reason, denied=others))
    return tuple(limits)


def opened_by(kind: Definition) -> tuple[str, ...]:
    """What naming a server opens to *kind* besides `tools`: all of the server's, unless `tools` names some of them."""
    named = {server_of(entry) for entry in kind.tools or ()}
    return tuple(f"{PREFIX}{server}" for server in kind.mcp_servers or () if server not in named)

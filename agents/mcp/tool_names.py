"""Names of MCP tools, `mcp__server__tool`, and the entries in rules and definitions that match such names."""

import re
from collections.abc import Iterable

PREFIX = "mcp__"
LONGEST = 128
"""Maximum length of a tool name that the API accepts, in characters."""

_UNFIT = re.compile(r"[^a-zA-Z0-9-]+")


def plain_name(name: str) -> str:
    """Return the server name *name* for use in tool names: other characters than A-Z, a-z, 0-9, - become `_`."""
    return _UNFIT.sub("_", name).strip("_")


def tool_name(server: str, tool: str) -> str | None:
    """Return the name `mcp__server__tool`; None if *tool* is empty or the name too long. *server* is a `plain_name`."""
    fit = re.sub(r"[^a-zA-Z0-9_-]", "_", tool)
    name = f"{PREFIX}{server}__{fit}"
    return name if tool and len(name) <= LONGEST else None


def server_of(entry: str) -> str | None:
    """Return the server in *entry*, such as `mcp__server__tool`; None if *entry* does not begin with `mcp__`."""
    return entry.removeprefix(PREFIX).partition("__")[0] if entry.startswith(PREFIX) else None


def matches_tool(entry: str, name: str) -> bool:
    """True if *entry* of a rule equals the tool *name*; or for an MCP tool: its server, or a prefix and `*`."""
    if entry == name:
        return True
    if not (entry.startswith(PREFIX) and name.startswith(PREFIX)):
        return False
    if entry.endswith("*"):
        return name.startswith(entry[:-1])
    # A server name never contains `__`, see `plain_name`.
    return "__" not in entry.removeprefix(PREFIX) and name.startswith(f"{entry}__")


def any_matches_tool(entries: Iterable[str], name: str) -> bool:
    """True if one of *entries* equals the tool *name*; or for an MCP tool: its server, or a prefix and `*`."""
    return any(matches_tool(entry, name) for entry in entries)

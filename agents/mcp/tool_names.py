"""Names of MCP tools, `mcp__server__tool`, and which of them an entry matches."""

import re
from collections.abc import Iterable

PREFIX = "mcp__"
LONGEST = 128
"""Characters of a tool's name that the API takes."""

_UNFIT = re.compile(r"[^a-zA-Z0-9-]+")


def plain_name(name: str) -> str:
    """*name* as a part of a tool's name: letters, digits, `-`, and `_` for each stretch of anything else."""
    return _UNFIT.sub("_", name).strip("_")


def tool_name(server: str, tool: str) -> str | None:
    """What the model calls the *tool* of a *server*, whose name is plain; None for one that cannot be called."""
    fit = re.sub(r"[^a-zA-Z0-9_-]", "_", tool)
    name = f"{PREFIX}{server}__{fit}"
    return name if tool and len(name) <= LONGEST else None


def server_of(entry: str) -> str | None:
    """The server that *entry*, of a rule or a definition, is about; None if it is about no server's tools."""
    return entry.removeprefix(PREFIX).partition("__")[0] if entry.startswith(PREFIX) else None


def matches_tool(entry: str, name: str) -> bool:
    """Whether *entry* is for the tool *name*: it is its name, that of its server, or a beginning and `*`."""
    if entry == name:
        return True
    if not (entry.startswith(PREFIX) and name.startswith(PREFIX)):
        return False
    if entry.endswith("*"):
        return name.startswith(entry[:-1])
    # The name of a server has no `__` in it, see `plain_name`.
    return "__" not in entry.removeprefix(PREFIX) and name.startswith(f"{entry}__")


def any_matches_tool(entries: Iterable[str], name: str) -> bool:
    """Whether one of *entries* matches the tool *name*, by `matches_tool`."""
    return any(matches_tool(entry, name) for entry in entries)

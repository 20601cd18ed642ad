"""Tool list of a session's MCP servers, in a file.

Tools are at the beginning of every request. A server that lists other tools later would change the cached prefix, so
the first list of each server is used for the whole session.
"""

from pathlib import Path

import msgspec

from coterie.agents.prompts import render
from coterie.errors import ConfigInvalid
from coterie.files import replace_file

FILE = "mcp.json"
VERSION = 1


class ListedTool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool of a server."""

    name: str
    """Name for the model."""
    server: str
    tool: str
    """Name on the server."""
    description: str
    schema: msgspec.Raw
    """Input schema, as the server sent it."""
    kinds: list[str] | None = None
    """Agent types whose definitions configure the server; None for a server of all agents."""


class McpToolList(msgspec.Struct, frozen=True, kw_only=True):
    """All tools of a session's servers, in the order of a request."""

    v: int = VERSION
    tools: list[ListedTool] = msgspec.field(default_factory=list)
    instructions: dict[str, str] = msgspec.field(default_factory=dict)
    """Instructions for the use of each server, by server."""

    def to_text(self) -> str:
        """Return the instructions as a text for agents; empty if there are none."""
        texts = [f"## {server}\n\n{text}" for server, text in sorted(self.instructions.items())]
        return render("mcp", words="\n\n".join(texts)) if texts else ""

    def save(self, session: Path) -> None:
        """Write the list to the directory of a session. Blocks. Raises `OSError`."""
        replace_file(session / FILE, msgspec.json.encode(self) + b"\n", mode=0o600)


def load_tool_list(session: Path) -> McpToolList | None:
    """Load the list of a *session* directory; None without a list. Blocks. Raises `ConfigInvalid` and `OSError`."""
    try:
        tool_list = msgspec.json.decode((session / FILE).read_bytes(), type=McpToolList)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as exc:
        raise ConfigInvalid(str(session / FILE), f"is not a list of tools: {exc}") from exc
    if tool_list.v != VERSION:
        raise ConfigInvalid(str(session / FILE), f"has version {tool_list.v}; this program supports version {VERSION}")
    return tool_list

"""File with the list of all MCP tools of a session.

Tools are at the beginning of every request, where a change would make the cached prefix useless. So the first list of
each server is used for the whole session, even if the server lists other tools later.
"""

from pathlib import Path

import msgspec

from coterie.agents.prompts import render
from coterie.errors import ConfigInvalid
from coterie.files import replace_file

FILE = "mcp.json"
VERSION = 1


class ListedTool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool of an MCP server, as the server has listed it."""

    name: str
    """Name of the tool for the model, which contains the name of the server."""
    server: str
    tool: str
    """Name of the tool on its server."""
    description: str
    schema: msgspec.Raw
    """JSON Schema of the input, as the server sent it."""
    kinds: list[str] | None = None
    """Agent types that may use the tool, because their definitions configure its server; None for all agent types."""


class McpToolList(msgspec.Struct, frozen=True, kw_only=True):
    """Tools of all MCP servers of a session, in the order in which requests contain them, and instructions."""

    v: int = VERSION
    tools: list[ListedTool] = msgspec.field(default_factory=list)
    instructions: dict[str, str] = msgspec.field(default_factory=dict)
    """Text about the use of its tools, by server name, from each server that gives one and that all agent types use."""

    def to_text(self) -> str:
        """Return the instructions of all servers as one text for agents; empty if there are no instructions."""
        texts = [f"## {server}\n\n{text}" for server, text in sorted(self.instructions.items())]
        return render("mcp", words="\n\n".join(texts)) if texts else ""

    def save(self, session: Path) -> None:
        """Write the list to its file in *session*, the directory of a session. Blocks. Raises `OSError`."""
        replace_file(session / FILE, msgspec.json.encode(self) + b"\n", mode=0o600)


def load_tool_list(session: Path) -> McpToolList | None:
    """Load the MCP tools from the directory *session*; None without the file. Raises `ConfigInvalid` and `OSError`."""
    try:
        tool_list = msgspec.json.decode((session / FILE).read_bytes(), type=McpToolList)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as exc:
        reason = f"is not a valid list of this session's MCP tools: {exc}; repair the file, or start a new session"
        raise ConfigInvalid(str(session / FILE), reason) from exc
    if tool_list.v != VERSION:
        reason = f"is a list of MCP tools in version {tool_list.v}, but this program supports version {VERSION}"
        raise ConfigInvalid(str(session / FILE), f"{reason}; start a new session, or use another version of Coterie")
    return tool_list

"""Tool list of a session's MCP servers, in a file.

Tools stand at the very beginning of a request. A server that lists others later would make another prefix of it, so
what the servers listed first holds for the whole session.
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
    """What the model calls it by."""
    server: str
    tool: str
    """What the server calls it."""
    description: str
    schema: msgspec.Raw
    """Of its input, as the server has it."""
    kinds: list[str] | None = None
    """The kinds of agents that it is there for, by whose definitions the server is configured; None for everyone."""


class McpToolList(msgspec.Struct, frozen=True, kw_only=True):
    """All tools of a session's servers, in the order of a request."""

    v: int = VERSION
    tools: list[ListedTool] = msgspec.field(default_factory=list)
    instructions: dict[str, str] = msgspec.field(default_factory=dict)
    """What servers say on how to use them, by server."""

    def to_text(self) -> str:
        """The instructions, as an agent is told them before its task; empty if there are none."""
        told = [f"## {server}\n\n{text}" for server, text in sorted(self.instructions.items())]
        return render("mcp", words="\n\n".join(told)) if told else ""

    def save(self, session: Path) -> None:
        """Put it into the directory of a session. Blocks. Raises `OSError`."""
        replace_file(session / FILE, msgspec.json.encode(self) + b"\n", mode=0o600)


def load_tool_list(session: Path) -> McpToolList | None:
    """The listing in the directory of a *session*; None if it has none. Blocks. Raises `ConfigInvalid`, `OSError`."""
    try:
        listing = msgspec.json.decode((session / FILE).read_bytes(), type=McpToolList)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as exc:
        raise ConfigInvalid(str(session / FILE), f"is no list of tools: {exc}") from exc
    if listing.v != VERSION:
        raise ConfigInvalid(str(session / FILE), f"is of version {listing.v}; this program reads {VERSION}")
    return listing

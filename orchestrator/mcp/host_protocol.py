"""Messages between the root and the MCP host process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import attrs
import msgspec

from coterie.agents.mcp.server_config import ServerConfig, Transport
from coterie.agents.mcp.tool_list_file import ListedTool
from coterie.agents.root_link.wire_format import WireMessage

ServerState = Literal["connected", "failed", "lost"]
"""failed: it could not be connected. lost: it was connected, and is not any more."""
SECRET_LENGTH = 8
"""Characters from which on a value may be a secret; shorter ones are everywhere."""


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A server that may be started, with its variables filled in."""

    name: str
    transport: Transport
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_shared: bool = True
    kinds: tuple[str, ...] | None = None
    """Who alone may use it, see `ListedTool.kinds`."""
    secrets: tuple[str, ...] = ()
    """What must be in no record: values of variables, of its environment and of its headers, the longest first."""

    @classmethod
    def of(
        cls,
        written: ServerConfig,
        environ: Mapping[str, str],
        project: Path,
        kinds: tuple[str, ...] | None = None,
    ) -> "ServerSpec":
        """The server that is *written* down, with the variables of *environ*, to run in *project* unless it says where.

        Raises `ConfigInvalid`.
        """
        filled = written.with_variables(environ)
        filled = attrs.evolve(filled, cwd=str(project / Path(filled.cwd or ".").expanduser()))
        used = [environ[name] for name in written.variables if name in environ]
        values = (*used, *filled.env.values(), *filled.headers.values())
        # `Authorization: Bearer ...`: the token alone is as secret as all of it.
        parts = {part for value in values for part in (value, *value.split()) if len(part) >= SECRET_LENGTH}
        return cls(**attrs.asdict(filled), kinds=kinds, secrets=tuple(sorted(parts, key=len, reverse=True)))

    def redact(self, text: str) -> str:
        """*text* without the secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


class OpenServers(WireMessage, tag="open_servers", frozen=True):
    """The first word of the root: which servers are wanted, and where what they say on the side is kept."""

    servers: tuple[ServerSpec, ...]
    token: str
    """Which agents must have."""
    start_seconds: float
    """How long a server may take until it has listed its tools."""
    logs: str
    """The directory for what servers write to standard error."""
    is_listed: bool
    """Whether the session knows its tools: then servers are connected when they are first called."""


class ListedServer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one server."""

    name: str
    tools: tuple[ListedTool, ...] = ()
    instructions: str = ""
    """What the server says on how to use it."""
    left_out: tuple[str, ...] = ()
    """Tools that cannot be offered, each with the reason."""


class ServersListed(WireMessage, tag="listed", frozen=True):
    """All servers have listed their tools, or had the time for it."""

    servers: tuple[ListedServer, ...]


class ServerStateChanged(WireMessage, tag="server_told", frozen=True):
    """A server is in another state."""

    server: str
    state: ServerState
    reason: str = ""
    owner: str | None = None
    """Which agent it is for alone; None for the connection that all share."""
    pid: int | None = None


HostMessage = ServersListed | ServerStateChanged

root_request_decoder: msgspec.json.Decoder[OpenServers] = msgspec.json.Decoder(OpenServers)
host_message_decoder: msgspec.json.Decoder[HostMessage] = msgspec.json.Decoder(HostMessage)

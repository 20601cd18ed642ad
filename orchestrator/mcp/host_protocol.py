"""Messages between the root and the MCP host process."""

from collections.abc import Mapping
from pathlib import Path

import attrs
import msgspec

from coterie.agents.events.root_events import McpChanged
from coterie.agents.mcp.server_config import ServerConfig
from coterie.agents.mcp.tool_list_file import ListedTool
from coterie.agents.root_link.wire_format import WireMessage

SECRET_LENGTH = 8
"""Least number of characters of a secret; shorter values occur too often in other text."""


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A server that may be started, with its variables substituted."""

    config: ServerConfig
    kinds: tuple[str, ...] | None = None
    """Agent types that may use the server; None for all. See `ListedTool.kinds`."""
    secrets: tuple[str, ...] = ()
    """Texts that must not be recorded: values of variables, environment and headers, longest first."""

    @classmethod
    def of(
        cls,
        written: ServerConfig,
        environ: Mapping[str, str],
        project: Path,
        kinds: tuple[str, ...] | None = None,
    ) -> "ServerSpec":
        """Create the spec of a server: the configuration *written* with the variables of *environ* substituted.

        The working directory of the server is relative to *project*. Raises `ConfigInvalid`.
        """
        filled = written.with_variables(environ)
        filled = attrs.evolve(filled, cwd=str(project / Path(filled.cwd or ".").expanduser()))
        used = [environ[name] for name in written.variables if name in environ]
        values = (*used, *filled.env.values(), *filled.headers.values())
        # In `Authorization: Bearer ...` the token alone is a secret too.
        parts = {part for value in values for part in (value, *value.split()) if len(part) >= SECRET_LENGTH}
        return cls(config=filled, kinds=kinds, secrets=tuple(sorted(parts, key=len, reverse=True)))

    @property
    def name(self) -> str:
        """The name of the server."""
        return self.config.name

    def redact(self, text: str) -> str:
        """Return *text* with the secrets replaced by `***`."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


class OpenServers(WireMessage, tag="open_servers", frozen=True):
    """First message of the root: the servers to run, and their settings."""

    servers: tuple[ServerSpec, ...]
    token: str
    """Token that agents must send with each call."""
    start_seconds: float
    """Seconds until a server must have listed its tools."""
    logs: str
    """Directory for the standard error output of the servers."""
    is_listed: bool
    """True if the session already has its tool list; then servers are connected on their first call."""


class ListedServer(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of one MCP server, and its instructions."""

    name: str
    tools: tuple[ListedTool, ...] = ()
    instructions: str = ""
    """Instructions of the server on its use."""
    left_out: tuple[str, ...] = ()
    """Tools that cannot be used, each with the reason."""


class ServersListed(WireMessage, tag="listed", frozen=True):
    """All servers have listed their tools, or reached the timeout."""

    servers: tuple[ListedServer, ...]


class ServerStateChanged(WireMessage, tag="server_told", frozen=True):
    """The state of a server has changed."""

    event: McpChanged


HostMessage = ServersListed | ServerStateChanged

root_request_decoder: msgspec.json.Decoder[OpenServers] = msgspec.json.Decoder(OpenServers)
host_message_decoder: msgspec.json.Decoder[HostMessage] = msgspec.json.Decoder(HostMessage)

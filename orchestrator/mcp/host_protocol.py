"""Messages between the root (supervisor of a session) and the MCP host (process that runs the MCP servers)."""

from collections.abc import Mapping
from pathlib import Path

import attrs
import msgspec

from coterie.agents.events.root_events import McpChanged
from coterie.agents.mcp.server_config import ServerConfig
from coterie.agents.mcp.tool_list_file import ListedTool
from coterie.agents.root_link.wire_format import WireMessage

SECRET_LENGTH = 8
"""Minimum length, in characters, of a value to be redacted as a secret; shorter ones occur too often in other text."""


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of one MCP server, ready to start: variables in it, such as `${TOKEN}`, have been substituted."""

    config: ServerConfig
    kinds: tuple[str, ...] | None = None
    """Agent types that may use the server; None for all agent types."""
    secrets: tuple[str, ...] = ()
    """Texts that must not appear in logs and events: values of variables, environment and headers, longest first."""

    @classmethod
    def of(
        cls,
        written: ServerConfig,
        environ: Mapping[str, str],
        project: Path,
        kinds: tuple[str, ...] | None = None,
    ) -> "ServerSpec":
        """Create the spec of the server *written* for agent types *kinds* (None: all), with variables of *environ*.

        A relative working directory of the server becomes one below *project*. Raises `ConfigInvalid`.
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
        """Name of the MCP server."""
        return self.config.name

    def redact(self, text: str) -> str:
        """Return *text* with each of the server's secrets replaced by `***`, for logs, events and error texts."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


class OpenServers(WireMessage, tag="open_servers", frozen=True):
    """First and only message of the root (supervisor) to the MCP host process: the MCP servers to run, and settings."""

    servers: tuple[ServerSpec, ...]
    token: str
    """Secret that agents must send with each request, so that other programs cannot call tools."""
    start_seconds: float
    """Timeout in seconds to connect to a server, and again to list its tools."""
    logs: str
    """Directory of the log files, one for the standard error of each server."""
    is_listed: bool
    """True if the session's tools are already fixed; then a server starts only when one of its tools is called."""


class ListedServer(msgspec.Struct, frozen=True, kw_only=True):
    """Tools and instructions of one MCP server, and the tools that were left out; all empty if connecting failed."""

    name: str
    tools: tuple[ListedTool, ...] = ()
    instructions: str = ""
    """Text of the server for the model about the use of its tools."""
    left_out: tuple[str, ...] = ()
    """Lines `NAME: reason` for tools that agents cannot use, such as `all of its tools: ...` if listing failed."""
    failure: str = ""
    """Reason why the connected server could not list its tools; empty after success, and if connecting failed."""


class ServersListed(WireMessage, tag="listed", frozen=True):
    """Message of the MCP host process: tools of all MCP servers, after each listed them, failed or timed out."""

    servers: tuple[ListedServer, ...]


class ServerStateChanged(WireMessage, tag="server_told", frozen=True):
    """Message of the MCP host process: an MCP server was connected, failed to connect or was lost; see `event`."""

    event: McpChanged


HostMessage = ServersListed | ServerStateChanged

root_request_decoder: msgspec.json.Decoder[OpenServers] = msgspec.json.Decoder(OpenServers)
host_message_decoder: msgspec.json.Decoder[HostMessage] = msgspec.json.Decoder(HostMessage)

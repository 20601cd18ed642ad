"""MCP servers configured for a project, with the user's approval."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import attrs

from coterie.agents.definitions.definition_files import FileProblem, Severity, read_text
from coterie.agents.definitions.store import load_definitions
from coterie.agents.mcp.server_config import ServerConfig, parse_server
from coterie.paths import checkout_root, home_directory, project_root
from coterie.source_positions import JsonPositions
from coterie.trusted_files import TrustedContents

SERVERS = "mcpServers"

ServerScope = Literal["user", "project"]
"""Origin of the configuration. A server configured by a repository is not started before the user has approved it."""


@attrs.frozen(kw_only=True)
class KnownServer:
    """A configured MCP server: its configuration, origin and approval."""

    config: ServerConfig
    source: Path
    scope: ServerScope
    is_approved: bool
    kinds: tuple[str, ...] | None = None
    """Agent types whose definitions configure the server, and which alone may use it; None for a server of a file."""

    @property
    def name(self) -> str:
        """The name of the server."""
        return self.config.name


@attrs.frozen(kw_only=True)
class McpServers:
    """The configured MCP servers, and problems in their files."""

    servers: tuple[KnownServer, ...] = ()
    problems: tuple[FileProblem, ...] = ()

    @property
    def approved(self) -> tuple[KnownServer, ...]:
        """Servers that may be started."""
        return tuple(server for server in self.servers if server.is_approved)

    @property
    def waiting(self) -> tuple[KnownServer, ...]:
        """Servers that wait for the user's approval."""
        return tuple(server for server in self.servers if not server.is_approved)


def load_servers(project: Path) -> McpServers:
    """Load the servers for *project*. Blocks. Raises `ConfigInvalid` only if the record of approvals is invalid.

    Of the approved servers of one name the last one counts; all servers that wait for approval follow. If both scopes
    configure one name, the project's server counts if it is approved, otherwise the user's. Problems in files are
    returned, not raised.
    """
    problems: list[FileProblem] = []
    approved = TrustedContents.of(project_root(project), "servers")
    places: tuple[tuple[Path, ServerScope], ...] = (
        (home_directory() / "mcp.json", "user"),
        (checkout_root(project) / ".mcp.json", "project"),
    )
    found = [
        KnownServer(config=config, source=path, scope=scope, is_approved=scope == "user" or config.content in approved)
        for path, scope in places
        for config in _read_file(path, problems)
    ]
    found += _of_definitions(project, approved, {server.name for server in found}, problems)
    effective = {server.name: server for server in found if server.is_approved}
    waiting = (server for server in found if not server.is_approved)
    return McpServers(servers=(*effective.values(), *waiting), problems=tuple(problems))


def approve_servers(project: Path, servers: Iterable[KnownServer]) -> None:
    """Approve *servers*, with their current content, for *project*. Blocks. Raises as `TrustedContents.approve`."""
    TrustedContents.of(project_root(project), "servers").approve(*(server.config.content for server in servers))


def _of_definitions(
    project: Path, approved: TrustedContents, taken: set[str], problems: list[FileProblem]
) -> list[KnownServer]:
    """Return the servers configured by agent definitions; several definitions may configure the same server."""
    found: dict[str, KnownServer] = {}
    for definition in load_definitions(project).by_name.values():
        for config in definition.own_servers:
            source, other = definition.source or Path(definition.name), found.get(config.name)
            if config.name in taken or (other is not None and other.config != config):
                reason = f"another MCP server is called {config.name}, so this one is left out; rename it"
                problems.append(FileProblem(path=source, line=1, severity="warning", reason=reason))
                continue
            scope: ServerScope = "project" if definition.scope in ("claude", "project") else "user"
            is_approved = scope == "user" or config.content in approved
            known = KnownServer(config=config, source=source, scope=scope, is_approved=is_approved, kinds=())
            found[config.name] = attrs.evolve(other or known, kinds=(*((other and other.kinds) or ()), definition.name))
    return list(found.values())


def _read_file(path: Path, problems: list[FileProblem]) -> list[ServerConfig]:
    """Return the valid servers of the file *path*; empty if there is no file."""

    def add_problem(severity: Severity, line: int, reason: str) -> None:
        problems.append(FileProblem(path=path, line=line, severity=severity, reason=reason))

    if not path.exists():
        return []
    text = read_text(path)
    if isinstance(text, FileProblem):
        problems.append(text)
        return []
    try:
        content = json.loads(text)
    except RecursionError:
        add_problem("error", 1, "is nested too deeply")
    except ValueError as exc:
        add_problem("error", exc.lineno if isinstance(exc, json.JSONDecodeError) else 1, f"is not JSON: {exc}")
    else:
        return _parse_servers(content, JsonPositions.parse(text), add_problem)
    return []


def _parse_servers(
    content: Any, lines: JsonPositions, add_problem: Callable[[Severity, int, str], None]
) -> list[ServerConfig]:
    servers = content.get(SERVERS) if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        add_problem("error", 1, f'has no servers; it begins with {{"{SERVERS}": {{"name": {{"command": ...}}}}}}')
        return []
    for key in (key for key in content if key != SERVERS):
        add_problem("warning", lines.line_of(key), f"has an unknown key {key!r}, which is ignored")
    found: dict[str, ServerConfig] = {}
    for name, value in servers.items():

        def add_warning(reason: str, key: str | None, name: str = name) -> None:
            add_problem("warning", lines.line_of(SERVERS, name, *([] if key is None else [key])), reason)

        config = parse_server(name, value, add_warning)
        if config is not None and config.name in found:
            add_warning(f"{name} becomes {config.name}, the name of another server; rename it", None)
        elif config is not None:
            found[config.name] = config
    return list(found.values())

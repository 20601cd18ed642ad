"""MCP servers that files and agent definitions configure for a project, and the user's approval of them."""

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
"""Owner of the file that configures a server; a server of "project" does not start before the user has approved it."""


@attrs.frozen(kw_only=True)
class KnownServer:
    """MCP server that is configured for a project: its configuration, the file with it, and the approval."""

    config: ServerConfig
    source: Path
    scope: ServerScope
    is_approved: bool
    kinds: tuple[str, ...] | None = None
    """Agent types that may use the server, because their definitions configure it; None if a JSON file does."""

    @property
    def name(self) -> str:
        """Name of the MCP server."""
        return self.config.name


@attrs.frozen(kw_only=True)
class McpServers:
    """All MCP servers that are configured for a project, approved or not, and the problems in their files."""

    servers: tuple[KnownServer, ...] = ()
    problems: tuple[FileProblem, ...] = ()

    @property
    def approved(self) -> tuple[KnownServer, ...]:
        """Servers that may be started, because the user configured or approved them."""
        return tuple(server for server in self.servers if server.is_approved)

    @property
    def waiting(self) -> tuple[KnownServer, ...]:
        """Servers of the project that must not start before the user approves them with `coterie mcp approve`."""
        return tuple(server for server in self.servers if not server.is_approved)


def load_servers(project: Path) -> McpServers:
    """Load the MCP servers for *project* from the user's file, the project's file and the agent definitions. Blocks.

    If user and project configure the same name, the project's server is used if it is approved, otherwise the user's.
    Problems in these files are returned. Raises `ConfigInvalid` only if the file with the stored approvals is invalid.
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
    """Store that *servers* may start in *project* until their entries change. Raises `ConfigInvalid` and `OSError`."""
    TrustedContents.of(project_root(project), "servers").approve(*(server.config.content for server in servers))


def _of_definitions(
    project: Path, approved: TrustedContents, taken: set[str], problems: list[FileProblem]
) -> list[KnownServer]:
    """Return servers of agent definitions, equal ones merged; a name used by another, or in *taken*, is a problem."""
    found: dict[str, KnownServer] = {}
    for definition in load_definitions(project).by_name.values():
        for config in definition.own_servers:
            source, other = definition.source or Path(definition.name), found.get(config.name)
            if config.name in taken or (other is not None and other.config != config):
                reason = f"its MCP server {config.name} is ignored, because another server has this name; rename it"
                problems.append(FileProblem(path=source, line=1, severity="warning", reason=reason))
                continue
            scope: ServerScope = "project" if definition.scope in ("claude", "project") else "user"
            is_approved = scope == "user" or config.content in approved
            known = KnownServer(config=config, source=source, scope=scope, is_approved=is_approved, kinds=())
            found[config.name] = attrs.evolve(other or known, kinds=(*((other and other.kinds) or ()), definition.name))
    return list(found.values())


def _read_file(path: Path, problems: list[FileProblem]) -> list[ServerConfig]:
    """Return the valid servers of the JSON file *path*, none if it is missing, and append its flaws to *problems*."""

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
        add_problem("error", 1, "is nested too deeply, so it is ignored; simplify it")
    except ValueError as exc:
        reason = f"is not JSON, so all its servers are ignored; correct it: {exc}"
        add_problem("error", exc.lineno if isinstance(exc, json.JSONDecodeError) else 1, reason)
    else:
        return _parse_servers(content, JsonPositions.parse(text), add_problem)
    return []


def _parse_servers(
    content: Any, lines: JsonPositions, add_problem: Callable[[Severity, int, str], None]
) -> list[ServerConfig]:
    servers = content.get(SERVERS) if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        add_problem("error", 1, f'has no servers; write them as {{"{SERVERS}": {{"name": {{"command": ...}}}}}}')
        return []
    for key in (key for key in content if key != SERVERS):
        add_problem("warning", lines.line_of(key), f"has an unknown key {key!r}, which is ignored; remove it")
    found: dict[str, ServerConfig] = {}
    for name, value in servers.items():

        def add_warning(reason: str, key: str | None, name: str = name) -> None:
            add_problem("warning", lines.line_of(SERVERS, name, *([] if key is None else [key])), reason)

        config = parse_server(name, value, add_warning)
        if config is not None and config.name in found:
            add_warning(f"{name!r} becomes {config.name!r}, the name of another server; ignored, so rename it", None)
        elif config is not None:
            found[config.name] = config
    return list(found.values())

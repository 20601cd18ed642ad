"""MCP servers configured for a project, with the user's approval."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, cast

import attrs

from coterie.agents.definitions.definition_files import FileProblem, Severity, read_text
from coterie.agents.definitions.store import load_definitions
from coterie.agents.mcp.server_config import ServerConfig, parse_server
from coterie.paths import checkout_root, home_directory, project_root
from coterie.trusted_files import TrustedContents

USER_FILE = "mcp.json"
PROJECT_FILE = ".mcp.json"
SERVERS = "mcpServers"

ServerScope = Literal["user", "project"]
"""Origin of the configuration. A server configured by a repository is not started before the user has approved it."""


@attrs.frozen(kw_only=True)
class KnownServer:
    """A configured server."""

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
    """Result of loading the configurations."""

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

    If both scopes configure one name, the project's server counts if it is approved, otherwise the user's. Problems in
    files are returned, not raised.
    """
    problems: list[FileProblem] = []
    approved = TrustedContents.of(project_root(project), "servers")
    places: tuple[tuple[Path, ServerScope], ...] = (
        (home_directory() / USER_FILE, "user"),
        (checkout_root(project) / PROJECT_FILE, "project"),
    )
    found = [
        KnownServer(config=config, source=path, scope=scope, is_approved=scope == "user" or config.content in approved)
        for path, scope in places
        for config in _read_file(path, problems)
    ]
    found += _of_definitions(project, approved, {server.name for server in found}, problems)
    return McpServers(servers=tuple(_effective_servers(found)), problems=tuple(problems))


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


def _effective_servers(found: Iterable[KnownServer]) -> Iterator[KnownServer]:
    """Yield the last approved server of each name, and all servers that wait for approval."""
    counts = {server.name: server for server in found if server.is_approved}
    yield from counts.values()
    yield from (server for server in found if not server.is_approved)


def _read_file(path: Path, problems: list[FileProblem]) -> list[ServerConfig]:
    """Return the valid servers of the file *path*; empty if there is no file."""
    if not path.exists():
        return []
    text = read_text(path)
    if isinstance(text, FileProblem):
        problems.append(text)
        return []
    return _Reader(path, text, problems).read()


@attrs.define(eq=False)
class _Reader:
    path: Path
    text: str
    problems: list[FileProblem]

    def read(self) -> list[ServerConfig]:
        try:
            content = json.loads(self.text)
        except RecursionError:
            self._add_problem("error", 1, "is nested too deeply")
            return []
        except ValueError as exc:
            line = exc.lineno if isinstance(exc, json.JSONDecodeError) else 1
            self._add_problem("error", line, f"is not JSON: {exc}")
            return []
        servers = content.get(SERVERS) if isinstance(content, dict) else None
        if not isinstance(servers, dict):
            self._add_problem(
                "error", 1, f'has no servers; it begins with {{"{SERVERS}": {{"name": {{"command": ...}}}}}}'
            )
            return []
        for key in content:
            if key != SERVERS:
                self._add_problem("warning", self._line(key), f"has an unknown key {key!r}, which is ignored")
        return list(self._servers(cast("dict[str, Any]", servers)))

    def _servers(self, servers: dict[str, Any]) -> Iterator[ServerConfig]:
        names: set[str] = set()
        for name, value in servers.items():

            def add_warning(reason: str, key: str | None, name: str = name) -> None:
                self._add_problem("warning", self._line(name, key), reason)

            config = parse_server(name, value, add_warning)
            if config is not None and config.name in names:
                add_warning(f"{name} becomes {config.name}, the name of another server; rename it", None)
            elif config is not None:
                names.add(config.name)
                yield config

    def _add_problem(self, severity: Severity, line: int, reason: str) -> None:
        self.problems.append(FileProblem(path=self.path, line=line, severity=severity, reason=reason))

    def _line(self, name: str, key: str | None = None) -> int:
        """Return the line of *key* of the server *name*, or of the server; found by a text search, so approximate."""
        start = max(self.text.find(json.dumps(name, ensure_ascii=False)), 0)
        if key is not None:
            start = max(self.text.find(json.dumps(key, ensure_ascii=False), start), start)
        return self.text.count("\n", 0, start) + 1

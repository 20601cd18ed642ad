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
"""Whose words configure it. A repository's words start nothing before the user has approved them."""


@attrs.frozen(kw_only=True)
class KnownServer:
    """A server that somebody has configured."""

    config: ServerConfig
    source: Path
    scope: ServerScope
    is_approved: bool
    kinds: tuple[str, ...] | None = None
    """The kinds of agents whose definitions configure it, and who alone may use it; None for a server of a file."""

    @property
    def name(self) -> str:
        """Its plain name."""
        return self.config.name


@attrs.frozen(kw_only=True)
class McpServers:
    """What was found."""

    servers: tuple[KnownServer, ...] = ()
    problems: tuple[FileProblem, ...] = ()

    @property
    def approved(self) -> tuple[KnownServer, ...]:
        """Those that may be started."""
        return tuple(server for server in self.servers if server.is_approved)

    @property
    def waiting(self) -> tuple[KnownServer, ...]:
        """Those that wait for the user's approval."""
        return tuple(server for server in self.servers if not server.is_approved)


def load_servers(project: Path) -> McpServers:
    """The servers for work in *project*. Blocks on the disk; raises `ConfigInvalid` for a record of approvals alone.

    Of one name the project's counts once it is approved, and until then the user's. Nothing about a file raises; it is
    among the problems.
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
    """Let *servers* be started in *project* from now on, as they are. Blocks. Raises as `TrustedContents.approve`."""
    TrustedContents.of(project_root(project), "servers").approve(*(server.config.content for server in servers))


def _of_definitions(
    project: Path, approved: TrustedContents, taken: set[str], problems: list[FileProblem]
) -> list[KnownServer]:
    """The servers that definitions bring along; several may bring the same."""
    found: dict[str, KnownServer] = {}
    for kind in load_definitions(project).by_name.values():
        for config in kind.own_servers:
            source, other = kind.source or Path(kind.name), found.get(config.name)
            if config.name in taken or (other is not None and other.config != config):
                reason = f"there is another MCP server {config.name}, so this one is left out; give it another name"
                problems.append(FileProblem(path=source, line=1, severity="warning", reason=reason))
                continue
            scope: ServerScope = "project" if kind.scope in ("claude", "project") else "user"
            is_approved = scope == "user" or config.content in approved
            known = KnownServer(config=config, source=source, scope=scope, is_approved=is_approved, kinds=())
            found[config.name] = attrs.evolve(other or known, kinds=(*((other and other.kinds) or ()), kind.name))
    return list(found.values())


def _effective_servers(found: Iterable[KnownServer]) -> Iterator[KnownServer]:
    """Of one name the last that is approved; all that wait are there too, so that they can be approved."""
    counts = {server.name: server for server in found if server.is_approved}
    yield from counts.values()
    yield from (server for server in found if not server.is_approved)


def _read_file(path: Path, problems: list[FileProblem]) -> list[ServerConfig]:
    """What can be used of the file *path*, if there is one."""
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
            self._add_problem("error", 1, "is nested too deep")
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
                self._add_problem("warning", self._line(key), f"has a key {key!r} that is not known and is ignored")
        return list(self._servers(cast("dict[str, Any]", servers)))

    def _servers(self, servers: dict[str, Any]) -> Iterator[ServerConfig]:
        names: set[str] = set()
        for name, value in servers.items():

            def add_warning(reason: str, key: str | None, name: str = name) -> None:
                self._add_problem("warning", self._line(name, key), reason)

            config = parse_server(name, value, add_warning)
            if config is not None and config.name in names:
                add_warning(f"{name} would be called {config.name}, as another server is; give it another name", None)
            elif config is not None:
                names.add(config.name)
                yield config

    def _add_problem(self, severity: Severity, line: int, reason: str) -> None:
        self.problems.append(FileProblem(path=self.path, line=line, severity=severity, reason=reason))

    def _line(self, name: str, key: str | None = None) -> int:
        """Where *key* of the server *name* stands, or the server; as good as one can tell from the text."""
        start = max(self.text.find(json.dumps(name, ensure_ascii=False)), 0)
        if key is not None:
            start = max(self.text.find(json.dumps(key, ensure_ascii=False), start), start)
        return self.text.count("\n", 0, start) + 1

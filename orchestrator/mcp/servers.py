"""Which servers there are for a project: the user's own, and those of the repository that the user has approved."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, cast

import attrs

from coterie.agents.definitions import load_definitions
from coterie.agents.definitions.problem import Problem, Severity
from coterie.agents.definitions.search import read_text
from coterie.agents.home import home
from coterie.agents.mcp.config import ServerConfig, read_server
from coterie.agents.project import checkout_root, project_root
from coterie.orchestrator.approved_files import ApprovedContents

USER_FILE = "mcp.json"
PROJECT_FILE = ".mcp.json"
SERVERS = "mcpServers"

Scope = Literal["user", "project"]
"""Whose words configure it. A repository's words start nothing before the user has approved them."""


@attrs.frozen(kw_only=True)
class KnownServer:
    """A server that somebody has configured."""

    config: ServerConfig
    source: Path
    scope: Scope
    is_approved: bool
    kinds: tuple[str, ...] | None = None
    """The kinds of agents whose definitions configure it, and who alone may use it; None for a server of a file."""

    @property
    def name(self) -> str:
        """Its plain name."""
        return self.config.name


@attrs.frozen(kw_only=True)
class Servers:
    """What was found."""

    servers: tuple[KnownServer, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def approved(self) -> tuple[KnownServer, ...]:
        """Those that may be started."""
        return tuple(server for server in self.servers if server.is_approved)

    @property
    def waiting(self) -> tuple[KnownServer, ...]:
        """Those that wait for the user's approval."""
        return tuple(server for server in self.servers if not server.is_approved)


def load_servers(project: Path) -> Servers:
    """The servers for work in *project*. Blocks on the disk; raises `ConfigInvalid` for a record of approvals alone.

    Of one name the project's counts once it is approved, and until then the user's. Nothing about a file raises; it is
    among the problems.
    """
    problems: list[Problem] = []
    approved = ApprovedContents.of(project_root(project), "servers")
    places: tuple[tuple[Path, Scope], ...] = (
        (home() / USER_FILE, "user"),
        (checkout_root(project) / PROJECT_FILE, "project"),
    )
    found = [
        KnownServer(config=config, source=path, scope=scope, is_approved=scope == "user" or config.content in approved)
        for path, scope in places
        for config in _read_file(path, problems)
    ]
    found += _of_definitions(project, approved, {server.name for server in found}, problems)
    return Servers(servers=tuple(_counting(found)), problems=tuple(problems))


def approve(project: Path, servers: Iterable[KnownServer]) -> None:
    """Let *servers* be started in *project* from now on, as they are. Blocks. Raises as `ApprovedContents.approve`."""
    ApprovedContents.of(project_root(project), "servers").approve(*(server.config.content for server in servers))


def _of_definitions(
    project: Path, approved: ApprovedContents, taken: set[str], problems: list[Problem]
) -> list[KnownServer]:
    """The servers that definitions bring along; several may bring the same."""
    found: dict[str, KnownServer] = {}
    for kind in load_definitions(project).by_name.values():
        for config in kind.own_servers:
            source, other = kind.source or Path(kind.name), found.get(config.name)
            if config.name in taken or (other is not None and other.config != config):
                reason = f"there is another MCP server {config.name}, so this one is left out; give it another name"
                problems.append(Problem(path=source, line=1, severity="warning", reason=reason))
                continue
            scope: Scope = "project" if kind.scope in ("claude", "project") else "user"
            is_approved = scope == "user" or config.content in approved
            known = KnownServer(config=config, source=source, scope=scope, is_approved=is_approved, kinds=())
            found[config.name] = attrs.evolve(other or known, kinds=(*((other and other.kinds) or ()), kind.name))
    return list(found.values())


def _counting(found: Iterable[KnownServer]) -> Iterator[KnownServer]:
    """Of one name the last that is approved; all that wait are there too, so that they can be approved."""
    counts = {server.name: server for server in found if server.is_approved}
    yield from counts.values()
    yield from (server for server in found if not server.is_approved)


def _read_file(path: Path, problems: list[Problem]) -> list[ServerConfig]:
    """What can be used of the file *path*, if there is one."""
    if not path.exists():
        return []
    text = read_text(path)
    if isinstance(text, Problem):
        problems.append(text)
        return []
    return _Reader(path, text, problems).read()


@attrs.define(eq=False)
class _Reader:
    path: Path
    text: str
    problems: list[Problem]

    def read(self) -> list[ServerConfig]:
        try:
            content = json.loads(self.text)
        except RecursionError:
            self._tell("error", 1, "is nested too deep")
            return []
        except ValueError as exc:
            line = exc.lineno if isinstance(exc, json.JSONDecodeError) else 1
            self._tell("error", line, f"is not JSON: {exc}")
            return []
        servers = content.get(SERVERS) if isinstance(content, dict) else None
        if not isinstance(servers, dict):
            self._tell("error", 1, f'has no servers; it begins with {{"{SERVERS}": {{"name": {{"command": ...}}}}}}')
            return []
        for key in content:
            if key != SERVERS:
                self._tell("warning", self._line(key), f"has a key {key!r} that is not known and is ignored")
        return list(self._servers(cast("dict[str, Any]", servers)))

    def _servers(self, servers: dict[str, Any]) -> Iterator[ServerConfig]:
        names: set[str] = set()
        for name, value in servers.items():

            def tell(reason: str, key: str | None, name: str = name) -> None:
                self._tell("warning", self._line(name, key), reason)

            config = read_server(name, value, tell)
            if config is not None and config.name in names:
                tell(f"{name} would be called {config.name}, as another server is; give it another name", None)
            elif config is not None:
                names.add(config.name)
                yield config

    def _tell(self, severity: Severity, line: int, reason: str) -> None:
        self.problems.append(Problem(path=self.path, line=line, severity=severity, reason=reason))

    def _line(self, name: str, key: str | None = None) -> int:
        """Where *key* of the server *name* stands, or the server; as good as one can tell from the text."""
        start = max(self.text.find(json.dumps(name, ensure_ascii=False)), 0)
        if key is not None:
            start = max(self.text.find(json.dumps(key, ensure_ascii=False), start), start)
        return self.text.count("\n", 0, start) + 1

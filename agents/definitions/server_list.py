"""The MCP servers that a definition names, and those that it brings along."""

from collections.abc import Iterator

import attrs

from coterie.agents.mcp.config import ServerConfig, Tell, read_server
from coterie.agents.mcp.naming import plain_name
from coterie.memory.front_matter import Value


@attrs.frozen(kw_only=True)
class ServerList:
    """What `mcpServers` says."""

    names: tuple[str, ...]
    """Of all servers that an agent of this kind may use, plain."""
    own: tuple[ServerConfig, ...]
    """Those of them that are configured right there."""


def read_server_list(value: Value, tell: Tell) -> ServerList:
    """Read names of servers, and servers by name; what cannot be one is told, and left out."""
    names: list[str] = []
    own: dict[str, ServerConfig] = {}
    for name, config in _entries(value):
        if config is None:
            names.append(plain_name(name))
        elif (read := read_server(name, config, tell)) is not None:
            names.append(read.name)
            # It is there for agents of one kind, so nobody else has it open.
            own[read.name] = attrs.evolve(read, is_shared=False)
    return ServerList(names=tuple(dict.fromkeys(filter(None, names))), own=tuple(own.values()))


def _entries(value: Value) -> Iterator[tuple[str, Value | None]]:
    """Names, and with them the configuration of a server that is not configured elsewhere."""
    if isinstance(value, str):
        yield from ((name.strip(), None) for name in value.split(","))
    elif isinstance(value, list):
        for entry in value:
            yield from _entries(entry)
    else:
        yield from value.items()

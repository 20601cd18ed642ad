"""Check of MCP servers from a shell: start, list tools, stop."""

import importlib.util
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.mcp.server_config import ServerConfig
from coterie.agents.tools.worker_process import command_environment
from coterie.errors import ConfigInvalid
from coterie.orchestrator.mcp.host_process import HOST_START_TIMEOUT, INSTALL, McpHostProcess, open_call_listener
from coterie.orchestrator.mcp.host_protocol import (
    HostMessage,
    OpenServers,
    ServersListed,
    ServerSpec,
    ServerStateChanged,
)


@attrs.define(eq=False, kw_only=True)
class ServerCheck:
    """What came of one server."""

    name: str
    failure: str = ""
    tools: dict[str, str] = attrs.field(factory=dict)
    """Descriptions by name."""
    left_out: tuple[str, ...] = ()

    def row(self) -> Mapping[str, Any]:
        """As JSON has it."""
        return attrs.asdict(self)


def check_servers(configs: Sequence[ServerConfig], seconds: float) -> list[ServerCheck]:
    """Start each server, and give it so many *seconds* to list its tools. Raises `ConfigInvalid`, and `OSError`."""
    if importlib.util.find_spec("mcp") is None:
        raise ConfigInvalid("mcp", INSTALL)
    tried = {config.name: ServerCheck(name=config.name) for config in configs}
    wanted = []
    for config in configs:
        try:
            wanted.append(ServerSpec.of(config, os.environ, Path.cwd()))
        except ConfigInvalid as exc:
            tried[config.name].failure = exc.reason
    if wanted:
        with tempfile.TemporaryDirectory(prefix="coterie-") as logs:
            trio.run(_check, wanted, seconds, Path(logs), tried)
    return list(tried.values())


async def _check(wanted: Sequence[ServerSpec], seconds: float, logs: Path, tried: Mapping[str, ServerCheck]) -> None:
    with open_call_listener() as listener:
        host = McpHostProcess.start(listener, command_environment({}))
    token = secrets.token_hex(32)
    request = OpenServers(servers=tuple(wanted), token=token, start_seconds=seconds, logs=str(logs), is_listed=False)
    try:
        with trio.move_on_after(HOST_START_TIMEOUT + 2 * seconds):
            async with host.open_channel(request) as channel:
                while (word := await channel.receive()) is not None and not _note(word, tried):
                    pass
    finally:
        # Its channel is closed, at which it stops what it has started.
        with trio.CancelScope(shield=True):
            await host.child.wait()


def _note(word: HostMessage, tried: Mapping[str, ServerCheck]) -> bool:
    """Whether all is said."""
    match word:
        case ServerStateChanged(state="failed" | "lost"):
            tried[word.server].failure = word.reason
        case ServersListed():
            for server in word.servers:
                tried[server.name].tools = {tool.name: tool.description for tool in server.tools}
                tried[server.name].left_out = server.left_out
    return isinstance(word, ServersListed)

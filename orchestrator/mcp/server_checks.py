"""Check of MCP servers for `coterie mcp test`: start each server, list its tools, stop it."""

import importlib.util
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import trio

from coterie.agents.events.root_events import McpChanged
from coterie.agents.mcp.server_config import ServerConfig
from coterie.agents.tools.worker_process import command_environment
from coterie.errors import ConfigInvalid
from coterie.orchestrator.mcp.host_process import HOST_START_TIMEOUT, INSTALL, McpHostProcess, open_call_listener
from coterie.orchestrator.mcp.host_protocol import (
    OpenServers,
    ServersListed,
    ServerSpec,
    ServerStateChanged,
)


@attrs.define(eq=False, kw_only=True)
class ServerCheck:
    """Result of starting one MCP server for a check."""

    name: str
    failure: str = ""
    tools: dict[str, str] = attrs.field(factory=dict)
    """Descriptions of the server's tools, by tool name."""
    left_out: tuple[str, ...] = ()


def check_servers(configs: Sequence[ServerConfig], seconds: float) -> list[ServerCheck]:
    """Start each server, and list its tools within *seconds*. Raises `ConfigInvalid` and `OSError`."""
    if importlib.util.find_spec("mcp") is None:
        raise ConfigInvalid("mcp", INSTALL)
    checks = {config.name: ServerCheck(name=config.name) for config in configs}
    specs = []
    for config in configs:
        try:
            specs.append(ServerSpec.of(config, os.environ, Path.cwd()))
        except ConfigInvalid as exc:
            checks[config.name].failure = exc.reason
    if specs:
        with tempfile.TemporaryDirectory(prefix="coterie-") as logs:
            trio.run(_check, specs, seconds, Path(logs), checks)
    return list(checks.values())


async def _check(specs: Sequence[ServerSpec], seconds: float, logs: Path, checks: Mapping[str, ServerCheck]) -> None:
    with open_call_listener() as listener:
        host = McpHostProcess.start(listener, command_environment({}))
    token = secrets.token_hex(32)
    request = OpenServers(servers=tuple(specs), token=token, start_seconds=seconds, logs=str(logs), is_listed=False)
    try:
        with trio.move_on_after(HOST_START_TIMEOUT + 2 * seconds):
            async with host.open_channel(request) as channel:
                while (message := await channel.receive()) is not None:
                    match message:
                        case ServerStateChanged(event=McpChanged(state="failed" | "lost") as event):
                            checks[event.server].failure = event.reason
                        case ServersListed():
                            for server in message.servers:
                                checks[server.name].tools = {tool.name: tool.description for tool in server.tools}
                                checks[server.name].left_out = server.left_out
                            break
    finally:
        # The channel is closed, which makes the host stop its servers.
        with trio.CancelScope(shield=True):
            await host.child.wait()

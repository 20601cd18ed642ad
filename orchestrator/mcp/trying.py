"""Servers tried from a shell: started, asked for their tools, and stopped, by the program that a session has for it."""

import importlib.util
import os
import secrets
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.control.line import open_line
from coterie.agents.errors import ConfigInvalid
from coterie.agents.mcp.config import ServerConfig
from coterie.agents.tools.environment import command_environment
from coterie.orchestrator.mcp.post import INSTALL, PROGRAM, STARTING
from coterie.orchestrator.mcp.words import HostSays, Listed, OpenServers, ServerTold, Wanted, host_says
from coterie.orchestrator.starting.program import start_program


@attrs.define(eq=False, kw_only=True)
class Tried:
    """What came of one server."""

    name: str
    failure: str = ""
    tools: dict[str, str] = attrs.field(factory=dict)
    """Descriptions by name."""
    left_out: tuple[str, ...] = ()

    def row(self) -> Mapping[str, Any]:
        """As JSON has it."""
        return attrs.asdict(self)


def try_servers(configs: Sequence[ServerConfig], seconds: float) -> list[Tried]:
    """Start each server, and give it so many *seconds* to list its tools. Raises `ConfigInvalid`, and `OSError`."""
    if importlib.util.find_spec("mcp") is None:
        raise ConfigInvalid("mcp", INSTALL)
    tried = {config.name: Tried(name=config.name) for config in configs}
    wanted = []
    for config in configs:
        try:
            wanted.append(Wanted.of(config, os.environ, Path.cwd()))
        except ConfigInvalid as exc:
            tried[config.name].failure = exc.reason
    if wanted:
        with tempfile.TemporaryDirectory(prefix="coterie-") as logs:
            trio.run(_try, wanted, seconds, Path(logs), tried)
    return list(tried.values())


async def _try(wanted: Sequence[Wanted], seconds: float, logs: Path, tried: Mapping[str, Tried]) -> None:
    near, far = socket.socketpair()
    with far, socket.socket(socket.AF_UNIX) as door:
        door.bind(f"\0coterie-mcp-{secrets.token_hex(16)}")
        door.listen()
        child = start_program(
            PROGRAM,
            [str(far.fileno()), str(door.fileno())],
            passed=[far.fileno(), door.fileno()],
            environment=command_environment({}),
        )
    try:
        with trio.move_on_after(STARTING + 2 * seconds):
            async with open_line(trio.SocketStream(trio.socket.from_stdlib_socket(near)), host_says) as line:
                line.say(
                    OpenServers(
                        servers=tuple(wanted),
                        token=secrets.token_hex(32),
                        start_seconds=seconds,
                        logs=str(logs),
                        is_listed=False,
                    )
                )
                while (word := await line.hear()) is not None and not _note(word, tried):
                    pass
    finally:
        # Its line is closed, at which it stops what it has started.
        with trio.CancelScope(shield=True):
            await child.wait()


def _note(word: HostSays, tried: Mapping[str, Tried]) -> bool:
    """Whether all is said."""
    match word:
        case ServerTold(state="failed" | "lost"):
            tried[word.server].failure = word.reason
        case Listed():
            for server in word.servers:
                tried[server.name].tools = {tool.name: tool.description for tool in server.tools}
                tried[server.name].left_out = server.left_out
    return isinstance(word, Listed)

"""Starting a root, and talking to it for as long as one looks at its session."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from coterie.agents.control.line import Line, open_line
from coterie.orchestrator.root_process.assignment import Assignment
from coterie.orchestrator.root_process.words import HostWord, Leave, ViewerWord, host_words
from coterie.orchestrator.starting import Child
from coterie.orchestrator.starting.program import start_program

PROGRAM = "coterie.orchestrator.root_process"
ENDED_WITHIN = 20.0
"""Seconds in which a root that nobody looks at any more has stopped its agents: asked, terminated, killed."""


@attrs.define(eq=False)
class Host:
    """A root, as whoever started it sees it."""

    _line: Line[HostWord]
    _process: Child
    _is_left: bool = attrs.field(default=False, init=False)

    def say(self, word: ViewerWord) -> None:
        """Let the root hear *word*. Raises `ControlLost`."""
        self._line.say(word)

    async def hear(self) -> HostWord | None:
        """What the root says next; None when it has ended. Raises `ControlLost`."""
        return await self._line.hear()

    def leave(self) -> None:
        """Let the root go on alone. Raises `ControlLost`."""
        self.say(Leave())
        self._is_left = True

    async def ended(self) -> None:
        """Wait for the end of a root that was not left."""
        if not self._is_left:
            with trio.move_on_after(ENDED_WITHIN, shield=True):
                await self._process.wait()


@asynccontextmanager
async def open_root_process(assignment: Assignment) -> AsyncIterator[Host]:
    """Start a root for *assignment* and talk to it until the block ends.

    It lives in a session of its own: no terminal reaches it. Unless it was left, the end of the block makes it stop
    its agents, and waits for its own end. Enter it on the main thread. Raises `OSError`.
    """
    near, far = socket.socketpair()
    with far, os.fdopen(os.memfd_create("assignment"), "wb") as file:
        file.write(assignment.to_bytes())
        file.flush()
        file.seek(0)
        passed = [far.fileno(), file.fileno()]
        process = start_program(PROGRAM, [str(number) for number in passed], passed=passed, environment=None)
    async with open_line(trio.SocketStream(trio.socket.from_stdlib_socket(near)), host_words) as line:
        host = Host(line, process)
        yield host
    await host.ended()

"""Starting a root, and talking to it for as long as one looks at its session."""

import os
import signal
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
    is_left: bool = attrs.field(default=False, init=False)
    """Whether it goes on when nobody looks any more."""

    def say(self, word: ViewerWord) -> None:
        """Let the root hear *word*. Raises `ControlLost`."""
        self._line.say(word)

    async def hear(self) -> HostWord | None:
        """What the root says next; None when it has ended. Raises `ControlLost`."""
        return await self._line.hear()

    def leave(self) -> None:
        """Let the root go on alone. Raises `ControlLost`."""
        self.say(Leave())
        self.is_left = True


@asynccontextmanager
async def open_root_process(assignment: Assignment) -> AsyncIterator[Host]:
    """Start a root for *assignment* and talk to it until the block ends.

    It lives in a session of its own: no terminal reaches it. Unless it was left, the end of the block, cancelled or
    not, makes it stop its agents, and waits for its own end; it is killed if that takes too long. Enter it on the main
    thread. Raises `OSError`.
    """
    await _reap_left()
    near, far = socket.socketpair()
    with far, os.fdopen(os.memfd_create("assignment"), "wb") as file:
        file.write(assignment.to_bytes())
        file.flush()
        file.seek(0)
        passed = [far.fileno(), file.fileno()]
        process = start_program(PROGRAM, [str(number) for number in passed], passed=passed, environment=None)
    host: Host | None = None
    try:
        async with open_line(trio.SocketStream(trio.socket.from_stdlib_socket(near)), host_words) as line:
            host = Host(line)
            yield host
    finally:
        if host is not None and host.is_left:
            _LEFT.append(process)
        else:
            await _ended(process)


_LEFT: list[Child] = []
"""Roots that go on alone. Nobody waits for them: those that have ended are reaped when another is started."""


async def _reap_left() -> None:
    for child in [child for child in _LEFT if child.has_ended()]:
        _LEFT.remove(child)
        with trio.CancelScope(shield=True):  # it has ended: there is nothing to wait for
            await child.wait()


async def _ended(process: Child) -> None:
    """Wait for the end of a root that nobody looks at any more; kill it, if that takes too long."""
    with trio.move_on_after(ENDED_WITHIN, shield=True):
        await process.wait()
        return
    process.send_signal(signal.SIGKILL)  # what it leaves is its janitor's to end
    with trio.move_on_after(ENDED_WITHIN, shield=True):
        await process.wait()

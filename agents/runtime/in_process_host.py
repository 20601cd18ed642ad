"""Agents that run as tasks of this agent process, each with its own channel to the root."""

import contextlib
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import attrs
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.root_link.messages import (
    RelayedMessage,
    RootFrame,
    RunOver,
    SignalAgent,
    StartInProcess,
    root_decoder,
)
from coterie.agents.root_link.multiplex import SubChannel, SubChannels
from coterie.agents.root_link.root_connection import InProcessMessage, RootConnection, open_root_connection_on
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.errors import first_exception

FAILED = 1
"""The status of an agent that could not begin, or could not tell its parent what came of the task."""
END_TIMEOUT = 5.0
"""Seconds that those who have done their work may take to end when who started them does."""


class Interruptible(Protocol):
    """Who can be told to end its turn: an agent."""

    def interrupt(self) -> None:
        """End the turn that is under way."""
        ...


Interrupting = Callable[[Interruptible], AbstractAsyncContextManager[None]]
"""Lets the agent's turn be ended from outside, within the block."""
AgentMain = Callable[[AgentSpec, RootConnection, Interrupting], Awaitable[int]]
"""Does the duty of one agent; what it returns is the status. The root hears why it is not 0."""


@attrs.define(eq=False)
class _InProcessAgent:
    """One agent here."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    has_worked: bool = False
    _agent: Interruptible | None = None

    @asynccontextmanager
    async def interrupting(self, agent: Interruptible) -> AsyncIterator[None]:
        """As `Interrupting`."""
        self._agent = agent
        try:
            yield
        finally:
            self._agent = None
            self.has_worked = True

    def handle_signal(self, number: int) -> None:
        """Do what the signal *number* would do to a process of its own."""
        if number == signal.SIGKILL:
            self.scope.cancel()
        elif self._agent is not None:
            self._agent.interrupt()


@attrs.define(eq=False)
class _InProcessHost:
    """The agents that one agent has started in its process."""

    _root: RootConnection
    _life: AgentMain
    _nursery: trio.Nursery
    _channels: SubChannels[RootFrame]
    _agents: dict[int, _InProcessAgent] = attrs.field(factory=dict, init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)

    def handle(self, word: InProcessMessage) -> None:
        """As `RootConnection.hosting`."""
        match word:
            case StartInProcess() if self._is_leaving:
                self._root.send(RunOver(line=word.line, status=-signal.SIGKILL))
            case StartInProcess():
                guest = self._agents[word.line] = _InProcessAgent()
                self._nursery.start_soon(self._run, word, guest, self._channels.open(word.line))
            case RelayedMessage():
                self._channels.handle(word)
            case SignalAgent():
                if (named := self._agents.get(word.line)) is not None:  # else it has just ended
                    named.handle_signal(word.number)

    def close(self) -> None:
        """End all who are still at work, and give the others time to end by themselves."""
        self._is_leaving = True
        self._nursery.cancel_scope.deadline = trio.current_time() + END_TIMEOUT
        for guest in self._agents.values():
            if not guest.has_worked:
                guest.scope.cancel()

    async def _run(self, word: StartInProcess, guest: _InProcessAgent, line: SubChannel[RootFrame]) -> None:
        """Own one agent from its start until nothing of it is left, and say so; an error in it is its own."""
        status = -signal.SIGKILL
        try:
            with guest.scope:
                status = await self._run_agent(word, guest, line)
        except ControlLost:
            status = FAILED  # it cannot be talked to
        finally:
            del self._agents[word.line]
            self._channels.close(word.line)
            # Whoever listens for the whole process finds out that the root has gone.
            with contextlib.suppress(ControlLost):
                self._root.send(RunOver(line=word.line, status=status))

    async def _run_agent(self, word: StartInProcess, guest: _InProcessAgent, line: SubChannel[RootFrame]) -> int:
        status = FAILED
        async with open_root_connection_on(line) as station:
            try:
                status = await self._life(AgentSpec.from_bytes(bytes(word.duty)), station, guest.interrupting)
            except* Exception as group:  # noqa: BLE001 - for this agent it is the outermost frame
                traceback.print_exception(group, file=sys.stderr)
                with contextlib.suppress(ControlLost):  # raised by the station itself
                    station.report_failure(_describe(group), is_for_user=False)
        return status


@asynccontextmanager
async def open_in_process_host(station: RootConnection, life: AgentMain) -> AsyncIterator[None]:
    """Let the root run agents in this process, each by *life*, below the one of *station*, until the block ends.

    Then those who have done their work may end by themselves, and the others are cancelled; none is left. Whatever is
    raised in one of them is its failure alone.
    """
    async with trio.open_nursery() as nursery:
        hosting = _InProcessHost(station, life, nursery, SubChannels(station.send, root_decoder))
        station.hosting = hosting.handle
        try:
            yield
        finally:
            hosting.close()
    station.hosting = None


def _describe(group: BaseException) -> str:
    return " ".join("".join(traceback.format_exception_only(first_exception(group))).split())

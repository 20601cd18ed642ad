"""Agents that run as tasks of this agent process, each with its own channel to the root."""

import contextlib
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
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
"""Exit status of an agent that could not begin, or could not report to its parent."""
END_TIMEOUT = 5.0
"""Seconds that agents which have done their work may take to end when their parent ends."""


class Interruptible(Protocol):
    """An agent, as far as its turn can be ended from outside."""

    def interrupt(self) -> None:
        """End the turn that is under way."""
        ...


Interrupting = Callable[[Interruptible], AbstractAsyncContextManager[None]]
"""Block within which the agent's turn can be ended from outside."""
AgentMain = Callable[[AgentSpec, RootConnection, Interrupting], Awaitable[int]]
"""Runs one agent and returns its exit status; the root is told why it is not 0."""


@attrs.define(eq=False)
class _InProcessAgent:
    """One agent that is a task of this process."""

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
        """Handle the signal *number* as a process of its own would."""
        if number == signal.SIGKILL:
            self.scope.cancel()
        elif self._agent is not None:
            self._agent.interrupt()


@attrs.define(eq=False)
class _InProcessHost:
    """Agents that one agent has started in its process."""

    _root: RootConnection
    _run_main: AgentMain
    _nursery: trio.Nursery
    _channels: SubChannels[RootFrame]
    _agents: dict[int, _InProcessAgent] = attrs.field(factory=dict, init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)

    def handle(self, message: InProcessMessage) -> None:
        """Handle a message of the root, as `RootConnection.hosting` passes it on."""
        match message:
            case StartInProcess() if self._is_leaving:
                self._root.send(RunOver(line=message.line, status=-signal.SIGKILL))
            case StartInProcess():
                agent = self._agents[message.line] = _InProcessAgent()
                self._nursery.start_soon(self._run, message, agent, self._channels.open(message.line))
            case RelayedMessage():
                self._channels.handle(message)
            case SignalAgent():
                if (named := self._agents.get(message.line)) is not None:  # else it has just ended
                    named.handle_signal(message.number)

    def close(self) -> None:
        """Cancel all agents that are still at work, and give the others time to end by themselves."""
        self._is_leaving = True
        self._nursery.cancel_scope.deadline = trio.current_time() + END_TIMEOUT
        for agent in self._agents.values():
            if not agent.has_worked:
                agent.scope.cancel()

    async def _run(self, message: StartInProcess, agent: _InProcessAgent, line: SubChannel[RootFrame]) -> None:
        """Own one agent until nothing of it is left, then tell the root; an error in the agent stays its own."""
        status = -signal.SIGKILL
        try:
            with agent.scope:
                status = await self._run_agent(message, agent, line)
        except ControlLost:
            status = FAILED  # its channel is unusable
        finally:
            del self._agents[message.line]
            self._channels.close(message.line)
            # The connection of the whole process raises it if the root has gone.
            with contextlib.suppress(ControlLost):
                self._root.send(RunOver(line=message.line, status=status))

    async def _run_agent(self, message: StartInProcess, agent: _InProcessAgent, line: SubChannel[RootFrame]) -> int:
        status = FAILED
        async with open_root_connection_on(line) as root:
            try:
                status = await self._run_main(AgentSpec.from_bytes(bytes(message.duty)), root, agent.interrupting)
            except* Exception as group:  # noqa: BLE001 - for this agent it is the outermost frame
                traceback.print_exception(group, file=sys.stderr)
                with contextlib.suppress(ControlLost):  # raised by the connection itself
                    root.report_failure(_describe(group), is_for_user=False)
        return status


@asynccontextmanager
async def open_in_process_host(root: RootConnection, run_main: AgentMain) -> AsyncIterator[None]:
    """Let the root run agents in this process, each by *run_main*, below the agent of *root*, until the block ends.

    Then agents that have done their work may end by themselves, and the others are cancelled; none is left. An
    exception in one of them is its failure alone.
    """
    with ExitStack() as stack:  # messages are handled until the last agent has ended
        async with trio.open_nursery() as nursery:
            host = _InProcessHost(root, run_main, nursery, SubChannels(root.send, root_decoder))
            stack.enter_context(root.hosting(host.handle))
            try:
                yield
            finally:
                host.close()


def _describe(group: BaseException) -> str:
    return " ".join("".join(traceback.format_exception_only(first_exception(group))).split())

"""Agents that run as tasks of this agent process, each with its own channel to the root."""

import contextlib
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager

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
"""Exit status of an agent that could not start, or could not report to its parent."""
END_TIMEOUT = 5.0
"""Seconds for in-process agents that have finished their work to exit when their parent exits."""


Interrupting = Callable[[Callable[[], None]], AbstractAsyncContextManager[None]]
"""Context manager within which the turn of an agent can be interrupted from outside by the given function."""
AgentMain = Callable[[AgentSpec, RootConnection, Interrupting], Awaitable[int]]
"""Runs one agent and returns its exit status; an agent that fails has reported the reason to the root."""


@attrs.define(eq=False)
class _InProcessAgent:
    """One agent that is a task of this process."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    has_worked: bool = False
    _interrupt: Callable[[], None] | None = None

    @asynccontextmanager
    async def interrupting(self, interrupt: Callable[[], None]) -> AsyncIterator[None]:
        """Let `handle_signal` call *interrupt* within the block; an `Interrupting`."""
        self._interrupt = interrupt
        try:
            yield
        finally:
            self._interrupt = None
            self.has_worked = True

    def handle_signal(self, number: int) -> None:
        """Cancel the agent on SIGKILL; any other signal interrupts its turn."""
        if number == signal.SIGKILL:
            self.scope.cancel()
        elif self._interrupt is not None:
            self._interrupt()


@attrs.define(eq=False)
class _InProcessHost:
    """Host of the agents that one agent has started in its process."""

    _root: RootConnection
    _run_main: AgentMain
    _nursery: trio.Nursery
    _channels: SubChannels[RootFrame]
    _agents: dict[int, _InProcessAgent] = attrs.field(factory=dict, init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)

    def handle(self, message: InProcessMessage) -> None:
        """Handle a message of the root that `RootConnection.hosting` passes on."""
        match message:
            case StartInProcess() if self._is_leaving:
                self._root.send(RunOver(line=message.line, status=-signal.SIGKILL))
            case StartInProcess():
                agent = self._agents[message.line] = _InProcessAgent()
                self._nursery.start_soon(self._run, message, agent, self._channels.open(message.line))
            case RelayedMessage():
                self._channels.handle(message)
            case SignalAgent():
                if (named := self._agents.get(message.line)) is not None:  # The agent may have ended already.
                    named.handle_signal(message.number)

    def close(self) -> None:
        """Cancel all agents that are still running, and give the others `END_TIMEOUT` seconds to exit."""
        self._is_leaving = True
        self._nursery.cancel_scope.deadline = trio.current_time() + END_TIMEOUT
        for agent in self._agents.values():
            if not agent.has_worked:
                agent.scope.cancel()

    async def _run(self, message: StartInProcess, agent: _InProcessAgent, channel: SubChannel[RootFrame]) -> None:
        """Run one agent until all of its tasks have ended, then report to the root. Its errors stay inside it."""
        status = -signal.SIGKILL
        try:
            with agent.scope:
                status = await self._run_agent(message, agent, channel)
        except ControlLost:
            status = FAILED  # The channel of this agent is unusable.
        finally:
            del self._agents[message.line]
            self._channels.close(message.line)
            # If the root has gone, the connection of the whole process raises this error.
            with contextlib.suppress(ControlLost):
                self._root.send(RunOver(line=message.line, status=status))

    async def _run_agent(self, message: StartInProcess, agent: _InProcessAgent, channel: SubChannel[RootFrame]) -> int:
        status = FAILED
        async with open_root_connection_on(channel) as root:
            try:
                status = await self._run_main(AgentSpec.from_bytes(bytes(message.duty)), root, agent.interrupting)
            except* Exception as group:  # noqa: BLE001 - outermost frame of an in-process agent
                traceback.print_exception(group, file=sys.stderr)
                with contextlib.suppress(ControlLost):  # The connection itself raises this error.
                    first = traceback.format_exception_only(first_exception(group))
                    root.report_failure(" ".join("".join(first).split()), is_for_user=False)
        return status


@asynccontextmanager
async def open_in_process_host(root: RootConnection, run_main: AgentMain) -> AsyncIterator[None]:
    """Within the block, let the root start agents in this process, each by *run_main*, as children of this agent.

    At the end of the block, agents that have finished their work may exit, and the others are cancelled; all have ended
    when the block is left. An exception in one agent is a failure of that agent alone.
    """
    with ExitStack() as stack:  # The handler must outlive the last agent.
        async with trio.open_nursery() as nursery:
            host = _InProcessHost(root, run_main, nursery, SubChannels(root.send, root_decoder))
            stack.enter_context(root.hosting(host.handle))
            try:
                yield
            finally:
                host.close()

"""Host of agents that run as tasks in the process of their parent, each with its own channel to the root process."""

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
"""Exit status of an agent that failed, for example because it could not start or send its report to its parent."""
END_TIMEOUT = 5.0
"""Maximum seconds for agents with finished work to exit when their parent, in whose process they run, exits."""


Interrupting = Callable[[Callable[[], None]], AbstractAsyncContextManager[None]]
"""Function that returns a context manager; in its block, a SIGTERM for an agent calls the given function."""
AgentMain = Callable[[AgentSpec, RootConnection, Interrupting], Awaitable[int]]
"""Function that runs one agent and returns its exit status; it reports expected failures to the root process."""


@attrs.define(eq=False)
class _InProcessAgent:
    """One agent that runs as a task in the process of its parent agent."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    has_worked: bool = False
    _interrupt: Callable[[], None] | None = None

    @asynccontextmanager
    async def interrupting(self, interrupt: Callable[[], None]) -> AsyncIterator[None]:
        """Within the block, let `handle_signal` call *interrupt* to stop the agent's turn. Of type `Interrupting`."""
        self._interrupt = interrupt
        try:
            yield
        finally:
            self._interrupt = None
            self.has_worked = True

    def handle_signal(self, number: int) -> None:
        """Handle a signal that the root has sent to the agent: SIGKILL cancels the agent, any other stops its turn."""
        if number == signal.SIGKILL:
            self.scope.cancel()
        elif self._interrupt is not None:
            self._interrupt()


@attrs.define(eq=False)
class _InProcessHost:
    """Host of the sub-agents that run as tasks in the process of one agent, which started them."""

    _root: RootConnection
    _run_main: AgentMain
    _nursery: trio.Nursery
    _channels: SubChannels[RootFrame]
    _agents: dict[int, _InProcessAgent] = attrs.field(factory=dict, init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)

    def handle(self, message: InProcessMessage) -> None:
        """Handle a message of the root process: start an agent in this process, or pass a message or signal to one."""
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
        """Start no more agents, cancel those that still work, and give the others `END_TIMEOUT` seconds to exit."""
        self._is_leaving = True
        self._nursery.cancel_scope.deadline = trio.current_time() + END_TIMEOUT
        for agent in self._agents.values():
            if not agent.has_worked:
                agent.scope.cancel()

    async def _run(self, message: StartInProcess, agent: _InProcessAgent, channel: SubChannel[RootFrame]) -> None:
        """Run one agent to its end, then send its exit status to the root. Its errors do not end other agents."""
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
    """Within the block, run sub-agents of this agent in this process, each by *run_main*, when the root requests it.

    At its end, agents with finished work get `END_TIMEOUT` seconds to exit, and the others are cancelled. All have
    ended when the block is left. An exception in one agent is a failure of that agent alone.
    """
    with ExitStack() as stack:  # The handler must outlive the last agent.
        async with trio.open_nursery() as nursery:
            host = _InProcessHost(root, run_main, nursery, SubChannels(root.send, root_decoder))
            stack.enter_context(root.hosting(host.handle))
            try:
                yield
            finally:
                host.close()

"""Root's handles of agents that run as tasks in the process of their parent."""

import contextlib
import itertools
import signal
from collections.abc import Callable, Iterator

import attrs
import msgspec
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.root_link.messages import (
    AgentFrame,
    RelayedMessage,
    RunOver,
    SignalAgent,
    StartInProcess,
    agent_decoder,
)
from coterie.agents.root_link.multiplex import SubChannel, SubChannels
from coterie.agents.root_link.wire_format import WireMessage
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.framing import FRAME_LIMIT
from coterie.orchestrator.processes.child_process import ChildProcess
from coterie.orchestrator.processes.process_start import StartFailed
from coterie.process_identity import wait_ended

MAX_SPEC_BYTES = FRAME_LIMIT * 3 // 4
"""Maximum bytes of a spec; leaves space in the frame for its wrapper."""
CANCEL_TIMEOUT = 10.0
"""Seconds after SIGKILL in which a task and its shells have ended, unless the whole process hangs."""


@attrs.define(eq=False)
class InProcessAgent:
    """Handle of an agent that is a task in its parent's process; signals are sent as messages to that process."""

    process: ChildProcess
    channel: SubChannel[AgentFrame]
    _number: int
    _send: Callable[[WireMessage], None]
    status: int | None = None
    is_lost: bool = attrs.field(default=False, init=False)
    """True if its process ended before it reported the end of the task."""
    _is_over: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def pid(self) -> int:
        """Id of the process in which the task runs."""
        return self.process.pid

    async def wait_ended(self) -> None:
        """Wait for the end, as `ChildProcess.wait_ended`."""
        await self._is_over.wait()

    def has_ended(self) -> bool:
        """Return True if it has ended, as `ChildProcess.has_ended`."""
        return self.status is not None

    async def wait(self) -> int:
        """Wait for the end after SIGKILL, as `ChildProcess.wait`; kill the whole process if the task does not end."""
        with trio.move_on_after(CANCEL_TIMEOUT):
            await self.wait_ended()
        if self.status is None:
            self.process.send_signal(signal.SIGKILL)
            await self.wait_ended()
        if self.is_lost and self.process.status is None:
            # The shells of the task become orphans of the root, and can be found, only when the process has ended.
            with trio.move_on_after(CANCEL_TIMEOUT), contextlib.suppress(ProcessLookupError):
                await wait_ended(self.pid)
        assert self.status is not None
        return self.status

    def send_signal(self, number: int) -> None:
        """Send a signal to the task. No-op if it has ended."""
        if self.status is None:
            with contextlib.suppress(ControlLost):  # the process has ended, and the task with it
                self._send(SignalAgent(line=self._number, number=number))

    def send_signal_to_group(self, number: int) -> None:
        """Send a signal to the task, whose shells end with it."""
        self.send_signal(number)

    def end(self, status: int) -> None:
        """Record the end with *status*. No-op if an end is recorded."""
        if self.status is None:
            self.status = status
            self._is_over.set()


RunningChild = ChildProcess | InProcessAgent
"""Handle of a running agent: both have the same methods."""


@attrs.define(eq=False)
class InProcessAgents:
    """Agents that run as tasks in the process of one parent agent."""

    _send: Callable[[WireMessage], None]
    """Sends a message to the parent's process."""
    _channels: SubChannels[AgentFrame] = attrs.field(init=False)
    _by_channel: dict[int, InProcessAgent] = attrs.field(factory=dict, init=False)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _is_closed: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._channels = SubChannels(self._send, agent_decoder)

    def run(self, spec: AgentSpec, host: RunningChild) -> InProcessAgent:
        """Start the agent of *spec* as a task in the process of *host*. Raises `StartFailed`."""
        payload, number = spec.to_bytes(), next(self._numbers)
        if len(payload) > MAX_SPEC_BYTES:
            raise StartFailed(f"the task is too long: its request has {len(payload):,} bytes, over {MAX_SPEC_BYTES:,}")
        if self._is_closed or host.has_ended():
            raise StartFailed("the parent of the agent has ended")
        try:
            self._send(StartInProcess(line=number, duty=msgspec.Raw(payload)))
        except ControlLost as exc:
            raise StartFailed(f"the process of the agent's parent cannot be reached: {exc}") from exc
        process = host.process if isinstance(host, InProcessAgent) else host
        agent = self._by_channel[number] = InProcessAgent(process, self._channels.open(number), number, self._send)
        return agent

    def handle(self, message: RelayedMessage | RunOver) -> None:
        """Handle a message of an in-process agent, or the report of its end."""
        if isinstance(message, RelayedMessage):
            self._channels.handle(message)
        elif (agent := self._by_channel.pop(message.line, None)) is not None:
            self._channels.close(message.line)
            agent.end(message.status)

    def close(self) -> None:
        """Mark all agents of the process as killed, because the process has ended."""
        self._is_closed = True
        self._channels.close_all()
        for agent in self._by_channel.values():
            agent.is_lost = True
            agent.end(-signal.SIGKILL)
        self._by_channel.clear()

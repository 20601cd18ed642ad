"""Handles in the root for agents that run as tasks in the process of their parent agent."""

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
"""Maximum bytes of an agent's start parameters, so that they fit with their wrapper into one frame."""
CANCEL_TIMEOUT = 10.0
"""Seconds that a killed task and its shells have to end; after that the whole process is killed."""


@attrs.define(eq=False)
class InProcessAgent:
    """Handle of an agent that is a task in its parent's process. Signals are sent as messages to that process."""

    process: ChildProcess
    channel: SubChannel[AgentFrame]
    _number: int
    _send: Callable[[WireMessage], None]
    status: int | None = None
    is_lost: bool = attrs.field(default=False, init=False)
    """True if the process ended before it reported that the task has ended."""
    _is_over: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def pid(self) -> int:
        """Id of the process in which the task runs."""
        return self.process.pid

    async def wait_ended(self) -> None:
        """Wait until the task has ended, like `ChildProcess.wait_ended` for a process."""
        await self._is_over.wait()

    def has_ended(self) -> bool:
        """Return True if the task has ended, like `ChildProcess.has_ended` for a process."""
        return self.status is not None

    async def wait(self) -> int:
        """Wait for the end of a killed task, and return its status. After `CANCEL_TIMEOUT` kill the whole process."""
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
        """Send signal *number* to the task as a message. No-op if the task has ended."""
        if self.status is None:
            with contextlib.suppress(ControlLost):  # the process has ended, and the task with it
                self._send(SignalAgent(line=self._number, number=number))

    def send_signal_to_group(self, number: int) -> None:
        """Send signal *number* to the task. A task has no process group; its shells end with it."""
        self.send_signal(number)

    def end(self, status: int) -> None:
        """Record that the task has ended with *status*. No-op if its end is already recorded."""
        if self.status is None:
            self.status = status
            self._is_over.set()


RunningChild = ChildProcess | InProcessAgent
"""Handle of a running agent, a process or a task; both classes have methods to signal it and to wait for its end."""


@attrs.define(eq=False)
class InProcessAgents:
    """Agents that run as tasks in the process of one parent agent, and the messages to and from them."""

    _send: Callable[[WireMessage], None]
    """Sends a message to the process of the parent."""
    _channels: SubChannels[AgentFrame] = attrs.field(init=False)
    _by_channel: dict[int, InProcessAgent] = attrs.field(factory=dict, init=False)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _is_closed: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._channels = SubChannels(self._send, agent_decoder)

    def run(self, spec: AgentSpec, host: RunningChild) -> InProcessAgent:
        """Start the agent of *spec* as a task in the process of *host*, and return its handle. Raises `StartFailed`."""
        payload, number = spec.to_bytes(), next(self._numbers)
        if len(payload) > MAX_SPEC_BYTES:
            raise StartFailed(
                f"the task is too long: with the settings it has {len(payload):,} bytes, over {MAX_SPEC_BYTES:,}; "
                "write it to a file, and tell the agent to read the file"
            )
        if self._is_closed or host.has_ended():
            raise StartFailed("the agent runs in the process of its parent, which has ended; start the parent")
        try:
            self._send(StartInProcess(line=number, duty=msgspec.Raw(payload)))
        except ControlLost as exc:
            raise StartFailed(f"the process of the agent's parent cannot be reached: {exc}; try again") from exc
        process = host.process if isinstance(host, InProcessAgent) else host
        agent = self._by_channel[number] = InProcessAgent(process, self._channels.open(number), number, self._send)
        return agent

    def handle(self, message: RelayedMessage | RunOver) -> None:
        """Forward a message of an agent to the agent's channel, or record the reported end of the agent."""
        if isinstance(message, RelayedMessage):
            self._channels.handle(message)
        elif (agent := self._by_channel.pop(message.line, None)) is not None:
            self._channels.close(message.line)
            agent.end(message.status)

    def close(self) -> None:
        """Record that all remaining agents of the process were killed, because it has ended or disconnected."""
        self._is_closed = True
        self._channels.close_all()
        for agent in self._by_channel.values():
            agent.is_lost = True
            agent.end(-signal.SIGKILL)
        self._by_channel.clear()

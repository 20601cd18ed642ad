"""Agents that run as tasks in the process of their parent, as the root holds them."""

import contextlib
import itertools
import signal
from collections.abc import Callable, Iterator
from typing import Protocol

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
"""Bytes; what it is wrapped in must fit into a frame as well."""
CANCEL_TIMEOUT = 10.0
"""Seconds after SIGKILL in which a task has ended, its shells with it, unless its whole process hangs."""


class RunningChild(Protocol):
    """What its owner holds of an agent: a `Child`, or a `InProcessAgent` in the process of another agent."""

    @property
    def pid(self) -> int:
        """The process that it runs in."""
        ...

    @property
    def status(self) -> int | None:
        """As `Child.status`."""
        ...

    async def wait_ended(self) -> None:
        """As `Child.ended`."""
        ...

    def has_ended(self) -> bool:
        """As `Child.has_ended`."""
        ...

    async def wait(self) -> int:
        """As `Child.wait`."""
        ...

    def send_signal(self, number: int) -> None:
        """As `Child.send_signal`."""
        ...

    def send_signal_to_group(self, number: int) -> None:
        """As `Child.send_signal_to_group`."""
        ...


@attrs.define(eq=False)
class InProcessAgent:
    """An agent that is a task in another's process. A signal is a word to that process, which does what it means."""

    process: ChildProcess
    channel: SubChannel[AgentFrame]
    _number: int
    _send: Callable[[WireMessage], None]
    status: int | None = None
    is_lost: bool = attrs.field(default=False, init=False)
    """Whether nothing was heard of its end: its process has gone, or goes."""
    _is_over: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def pid(self) -> int:
        """The number of the process that it is a task of."""
        return self.process.pid

    async def wait_ended(self) -> None:
        """As `Child.ended`."""
        await self._is_over.wait()

    def has_ended(self) -> bool:
        """As `Child.has_ended`."""
        return self.status is not None

    async def wait(self) -> int:
        """As `Child.wait`, for one that was sent SIGKILL: if its task does not end, its process is killed."""
        with trio.move_on_after(CANCEL_TIMEOUT):
            await self.wait_ended()
        if self.status is None:
            self.process.send_signal(signal.SIGKILL)
            await self.wait_ended()
        if self.is_lost and self.process.status is None:
            # Only when its process has ended are its shells where they can be found.
            with trio.move_on_after(CANCEL_TIMEOUT), contextlib.suppress(ProcessLookupError):
                await wait_ended(self.pid)
        assert self.status is not None
        return self.status

    def send_signal(self, number: int) -> None:
        """As `Child.send_signal`."""
        if self.status is None:
            with contextlib.suppress(ControlLost):  # its process has gone, and it with that
                self._send(SignalAgent(line=self._number, number=number))

    def send_signal_to_group(self, number: int) -> None:
        """As `send_signal`: its shells end with it."""
        self.send_signal(number)

    def end(self, status: int) -> None:
        """It is over; what it said first counts."""
        if self.status is None:
            self.status = status
            self._is_over.set()


@attrs.define(eq=False)
class InProcessAgents:
    """All that run in the process of one agent because that one started them."""

    _send: Callable[[WireMessage], None]
    """Speaks to that agent's process."""
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
            raise StartFailed(f"the task is too long, {len(payload):,} bytes with all that goes with it")
        if self._is_closed or host.has_ended():
            raise StartFailed("who started it has ended")
        try:
            self._send(StartInProcess(line=number, duty=msgspec.Raw(payload)))
        except ControlLost as exc:
            raise StartFailed(f"its process cannot be told: {exc}") from exc
        process = host.process if isinstance(host, InProcessAgent) else host
        assert isinstance(process, ChildProcess)
        guest = self._by_channel[number] = InProcessAgent(process, self._channels.open(number), number, self._send)
        return guest

    def handle(self, word: RelayedMessage | RunOver) -> None:
        """What the process says about one of them, or one of them itself."""
        if isinstance(word, RelayedMessage):
            self._channels.handle(word)
        elif (guest := self._by_channel.pop(word.line, None)) is not None:
            self._channels.close(word.line)
            guest.end(word.status)

    def close(self) -> None:
        """The process has gone, and all that were in it."""
        self._is_closed = True
        self._channels.close_all()
        for guest in self._by_channel.values():
            guest.is_lost = True
            guest.end(-signal.SIGKILL)
        self._by_channel.clear()

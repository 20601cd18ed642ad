"""Connection of an agent to the root of its session."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import attrs
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.root_link.approval_messages import PlanDecided, PlanReviewed, PromptAnswered
from coterie.agents.root_link.channel import MessageChannel, open_channel
from coterie.agents.root_link.job_messages import CompactJob, NotCompacted
from coterie.agents.root_link.message import WireMessage
from coterie.agents.root_link.messages import (
    Activity,
    ActivityChanged,
    CallAdmitted,
    CallRefused,
    ChildrenIdle,
    DeliverMessage,
    ExpectReport,
    RelayedMessage,
    RootMessage,
    RunFailed,
    RunOver,
    ShutdownForwarded,
    SignalAgent,
    SpawnFailed,
    SpawnStarted,
    StartInProcess,
    StopWaiting,
    TaskStopped,
    root_decoder,
)
from coterie.agents.root_link.remote_services import (
    RemoteApprover,
    RemoteGateway,
    RemoteMailAuthority,
    RemotePrompter,
    RemoteSpawner,
)
from coterie.mailbox.envelope import Envelope, MessageId

StoreMessage = Callable[[Envelope], Awaitable[object]]
"""Stores a message that is believed, so that the agent finds it in its mailbox."""
InProcessMessage = StartInProcess | RelayedMessage | SignalAgent
"""What is about agents that are tasks of the same process."""


@attrs.define(eq=False)
class RootConnection:
    """What an agent has of its root."""

    gate: RemoteGateway
    spawner: RemoteSpawner
    asker: RemotePrompter
    approver: RemoteApprover
    authority: RemoteMailAuthority
    _line: MessageChannel[RootMessage]
    release: Callable[[str, str], None] = lambda _name, _why: None
    """Lets the agent go on without waiting for the one named, and says why."""
    expect: Callable[[MessageId], None] = lambda _report: None
    """Lets the agent wait for the report of one that was started for it before it ends."""
    compact: Callable[[CompactJob], None] | None = None
    """Has the agent's conversation compacted; None as long as there is none."""
    hosting: Callable[[InProcessMessage], None] | None = None
    """Told what is about agents that run here as tasks; None where there can be none, or no more."""
    _take: StoreMessage | None = None
    _is_taking: trio.Event = attrs.field(factory=trio.Event, init=False)

    @classmethod
    def on(cls, line: MessageChannel[RootMessage]) -> "RootConnection":
        """What there is at the near end of *line*."""
        say = line.send
        spawner = RemoteSpawner.over(say)
        remote = (RemotePrompter.over(say), RemoteApprover.over(say), RemoteMailAuthority.over(say, spawner))
        return cls(RemoteGateway(say), spawner, *remote, line)

    @contextmanager
    def delivering_to(self, take: StoreMessage) -> Iterator[None]:
        """Let *take* store believed mail within the block, also what has come before; what comes later is too late."""
        self._take = take
        self._is_taking.set()
        try:
            yield
        finally:
            self._is_taking = trio.Event()

    async def deliver(self, envelope: Envelope) -> None:
        """Store a message that is believed, once there is where to."""
        await self._is_taking.wait()
        assert self._take is not None
        await self._take(envelope)

    def send(self, word: WireMessage) -> None:
        """As `MessageChannel.send`."""
        self._line.send(word)

    def report_activity(self, activity: Activity, what: str = "") -> None:
        """Say what the agent does from now on. Raises `ControlLost`."""
        self.send(ActivityChanged(activity=activity, what=what))

    def report_failure(self, reason: str, *, is_for_user: bool) -> None:
        """Say why the agent ends without having done its work. Raises `ControlLost`."""
        self.send(RunFailed(reason=reason, is_for_user=is_for_user))

    def handle_compact(self, word: CompactJob) -> None:
        """Pass on that the conversation is to be compacted, or say that it cannot be yet."""
        if self.compact is not None:
            self.compact(word)
        else:
            self.send(NotCompacted(call=word.call, reason="it has only begun"))

    def handle_answer(self, word: PromptAnswered | PlanReviewed | PlanDecided) -> None:
        """Let whoever asked somebody, or decided over somebody, go on."""
        match word:
            case PromptAnswered():
                self.asker.handle(word)
            case PlanReviewed():
                self.approver.handle(word)
            case PlanDecided():
                self.authority.handle(word)

    def handle_in_process(self, word: InProcessMessage) -> None:
        """Pass on what is about an agent that is a task here; one that there is no place for has ended."""
        if self.hosting is not None:
            self.hosting(word)
        elif isinstance(word, StartInProcess):
            self.send(RunOver(line=word.line, status=-signal.SIGKILL))


@asynccontextmanager
async def open_root_connection(stream: trio.SocketStream) -> AsyncIterator[RootConnection]:
    """Talk to the root over *stream* until the block ends, as `open_root_connection_on` does."""
    lost: ControlLost | None = None
    async with open_channel(stream, root_decoder) as line:
        try:
            async with open_root_connection_on(line) as station:
                yield station
        except ControlLost as exc:
            lost = exc
    if lost is not None:  # raised out here, where it is not put into a group
        raise lost


@asynccontextmanager
async def open_root_connection_on(line: MessageChannel[RootMessage]) -> AsyncIterator[RootConnection]:
    """Talk to the root on *line* until the block ends; believed mail waits until `delivering_to` says where to.

    When the root has gone, or cannot be understood, the block is cancelled and `ControlLost` raised: an agent that
    nobody supervises must end.
    """
    lost: ControlLost | None = None
    station = RootConnection.on(line)
    async with trio.open_nursery() as nursery:

        async def listen() -> None:
            nonlocal lost
            try:
                await _listen(line, station)
            except ControlLost as exc:
                lost = exc
                nursery.cancel_scope.cancel()

        nursery.start_soon(listen, name="control")
        yield station
        nursery.cancel_scope.cancel()
    if lost is not None:
        raise lost


async def _listen(line: MessageChannel[RootMessage], station: RootConnection) -> None:
    while (word := await line.receive()) is not None:
        match word:
            case CallAdmitted() | CallRefused():
                station.gate.handle(word)
            case SpawnStarted() | SpawnFailed() | TaskStopped() | ShutdownForwarded() | ChildrenIdle():
                station.spawner.handle(word)
            case PromptAnswered() | PlanReviewed() | PlanDecided():
                station.handle_answer(word)
            case StopWaiting():
                station.release(word.name, word.why)
            case ExpectReport():
                station.expect(word.report)
            case CompactJob():
                station.handle_compact(word)
            case StartInProcess() | RelayedMessage() | SignalAgent():
                station.handle_in_process(word)
            case DeliverMessage():
                await station.deliver(word.envelope())
    raise ControlLost("the root has gone")

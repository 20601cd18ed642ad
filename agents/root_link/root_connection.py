"""Connection of an agent to the root of its session."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import attrs
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.root_link.channel import MessageChannel, open_channel
from coterie.agents.root_link.job_messages import CompactionDone, CompactJob, NotCompacted
from coterie.agents.root_link.messages import (
    Activity,
    ActivityChanged,
    DeliverMessage,
    ExpectReport,
    RelayedMessage,
    RootFrame,
    RootMessage,
    RunFailed,
    RunOver,
    SignalAgent,
    StartInProcess,
    StopWaiting,
    root_decoder,
)
from coterie.agents.root_link.remote_services import (
    RemoteApprover,
    RemoteGateway,
    RemoteMailAuthority,
    RemotePrompter,
    RemoteSpawner,
)
from coterie.agents.root_link.request_channel import MessageHandlers, RequestChannel
from coterie.agents.root_link.wire_format import WireMessage
from coterie.mailbox.envelope import Envelope, MessageId

StoreMessage = Callable[[Envelope], Awaitable[object]]
"""Stores a message that is believed, so that the agent finds it in its mailbox."""
InProcessMessage = StartInProcess | RelayedMessage | SignalAgent
"""What is about agents that are tasks of the same process."""


@attrs.define(eq=False)
class RootConnection:
    """The agent's end of the connection, with the services of the root."""

    gate: RemoteGateway
    spawner: RemoteSpawner
    asker: RemotePrompter
    approver: RemoteApprover
    authority: RemoteMailAuthority
    _channel: RequestChannel[RootMessage]
    release: Callable[[str, str], None] = lambda _name, _why: None
    """Lets the agent go on without waiting for the one named, and says why."""
    expect: Callable[[MessageId], None] = lambda _report: None
    """Lets the agent wait for the report of one that was started for it before it ends."""
    compact: Callable[[CompactJob], Awaitable[CompactionDone | NotCompacted]] | None = None
    """Has the agent's conversation compacted; None as long as there is none."""
    hosting: Callable[[InProcessMessage], None] | None = None
    """Told what is about agents that run here as tasks; None where there can be none, or no more."""
    _take: StoreMessage | None = None
    _is_taking: trio.Event = attrs.field(factory=trio.Event, init=False)

    @classmethod
    def on(cls, channel: RequestChannel[RootMessage]) -> "RootConnection":
        """Make the services at the near end of *channel*."""
        spawner = RemoteSpawner(channel)
        authority = RemoteMailAuthority(channel, spawner)
        return cls(
            RemoteGateway(channel), spawner, RemotePrompter(channel), RemoteApprover(channel), authority, channel
        )

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

    def send(self, message: WireMessage) -> None:
        """As `RequestChannel.send`."""
        self._channel.send(message)

    def report_activity(self, activity: Activity, what: str = "") -> None:
        """Say what the agent does from now on. Raises `ControlLost`."""
        self.send(ActivityChanged(activity=activity, what=what))

    def report_failure(self, reason: str, *, is_for_user: bool) -> None:
        """Say why the agent ends without having done its work. Raises `ControlLost`."""
        self.send(RunFailed(reason=reason, is_for_user=is_for_user))

    async def serve(self, nursery: trio.Nursery) -> None:
        """Handle what the root sends until it has gone, then raise `ControlLost`; requests are handled in *nursery*."""
        handlers = MessageHandlers(on_message=self._handle_message, on_request=self._handle_request)
        await self._channel.serve(handlers, nursery)
        raise ControlLost("the root has gone")

    async def _handle_message(self, message: RootMessage) -> None:
        match message:
            case StopWaiting():
                self.release(message.name, message.why)
            case ExpectReport():
                self.expect(message.report)
            case StartInProcess() | RelayedMessage() | SignalAgent():
                self._handle_in_process(message)
            case DeliverMessage():
                await self.deliver(message.envelope())

    async def _handle_request(self, request: RootMessage) -> CompactionDone | NotCompacted:
        assert isinstance(request, CompactJob), "the root makes no other request"
        if self.compact is None:
            return NotCompacted(reason="it has only begun")
        return await self.compact(request)

    def _handle_in_process(self, message: InProcessMessage) -> None:
        """Pass on what is about an agent that is a task here; one that there is no place for has ended."""
        if self.hosting is not None:
            self.hosting(message)
        elif isinstance(message, StartInProcess):
            self.send(RunOver(line=message.line, status=-signal.SIGKILL))


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
async def open_root_connection_on(line: MessageChannel[RootFrame]) -> AsyncIterator[RootConnection]:
    """Talk to the root on *line* until the block ends; believed mail waits until `delivering_to` says where to.

    When the root has gone, or cannot be understood, the block is cancelled and `ControlLost` raised: an agent that
    nobody supervises must end.
    """
    lost: ControlLost | None = None
    channel: RequestChannel[RootMessage] = RequestChannel(line)
    station = RootConnection.on(channel)
    async with trio.open_nursery() as nursery:

        async def listen() -> None:
            nonlocal lost
            try:
                await station.serve(nursery)
            except ControlLost as exc:
                lost = exc
                # Before the channel is closed: requests that wait are cancelled with everything else.
                nursery.cancel_scope.cancel()
                channel.close()

        nursery.start_soon(listen, name="control")
        yield station
        nursery.cancel_scope.cancel()
    if lost is not None:
        raise lost

"""Connection of an agent to the root of its session."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import attrs
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.root_link.channel import MessageChannel, open_channel
from coterie.agents.root_link.job_messages import AGENT_GONE, CompactionDone, CompactJob, NotCompacted
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
from coterie.agents.root_link.remote_services import RemoteGateway, RemotePrompter, RemoteServices
from coterie.agents.root_link.request_channel import RequestChannel
from coterie.agents.root_link.wire_format import WireMessage
from coterie.mailbox.envelope import Envelope, MessageId

StoreMessage = Callable[[Envelope], Awaitable[object]]
"""Stores a trusted message in the mailbox of the agent."""
InProcessMessage = StartInProcess | RelayedMessage | SignalAgent
"""Messages about agents that are tasks of the same process."""


NOT_STARTED = "it has not started yet"


@attrs.frozen(kw_only=True)
class AgentHandlers:
    """Handlers of the root's messages about a built agent; the defaults are used until the agent is built."""

    release: Callable[[str, str], None] = lambda _name, _why: None
    """Stops the wait for the agent of this name, for the given reason."""
    expect: Callable[[MessageId], None] = lambda _report: None
    """Makes the agent wait, before it ends, for the report of a child that the root spawned for it."""
    compact: Callable[[CompactJob], Awaitable[CompactionDone | NotCompacted]] | None = None
    """Compacts the conversation of the agent."""


@attrs.define(eq=False)
class RootConnection:
    """Agent's end of the connection, with the services of the root."""

    _channel: RequestChannel[RootMessage]
    gate: RemoteGateway = attrs.field(init=False)
    asker: RemotePrompter = attrs.field(init=False)
    services: RemoteServices = attrs.field(init=False)
    _handlers: AgentHandlers = attrs.field(factory=AgentHandlers, init=False)
    _compact_refusal: str = attrs.field(default=NOT_STARTED, init=False)
    _in_process: Callable[[InProcessMessage], None] | None = attrs.field(default=None, init=False)
    """Handles messages about agents that are tasks of this process; None outside `hosting`."""
    _store: StoreMessage | None = attrs.field(default=None, init=False)
    _has_store: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.gate, self.asker = RemoteGateway(self._channel), RemotePrompter(self._channel)
        self.services = RemoteServices(self._channel)

    @contextmanager
    def delivering_to(self, store: StoreMessage) -> Iterator[None]:
        """Store trusted mail by *store* within the block, including mail that arrived before; later mail is lost."""
        self._store = store
        self._has_store.set()
        try:
            yield
        finally:
            self._has_store = trio.Event()

    @contextmanager
    def handling(self, handlers: AgentHandlers) -> Iterator[None]:
        """Pass the root's messages about the agent to *handlers* within the block."""
        self._handlers = handlers
        try:
            yield
        finally:
            self._handlers, self._compact_refusal = AgentHandlers(), AGENT_GONE

    @contextmanager
    def hosting(self, handler: Callable[[InProcessMessage], None]) -> Iterator[None]:
        """Pass messages about agents that are tasks of this process to *handler* within the block."""
        self._in_process = handler
        try:
            yield
        finally:
            self._in_process = None

    def send(self, message: WireMessage) -> None:
        """Send *message* to the root; as `RequestChannel.send`."""
        self._channel.send(message)

    def report_activity(self, activity: Activity, what: str = "") -> None:
        """Report the current activity of the agent to the root. Raises `ControlLost`."""
        self.send(ActivityChanged(activity=activity, what=what))

    def report_failure(self, reason: str, *, is_for_user: bool) -> None:
        """Report to the root why the agent ends before its work is done. Raises `ControlLost`."""
        self.send(RunFailed(reason=reason, is_for_user=is_for_user))

    async def serve(self, nursery: trio.Nursery) -> None:
        """Handle the root's messages, and its requests in *nursery*, until it closes; then raise `ControlLost`."""
        await self._channel.serve(nursery, self._handle_message, self._handle_request)
        raise ControlLost("the root process of the session has ended")

    async def _handle_message(self, message: RootMessage) -> None:
        match message:
            case StopWaiting():
                self._handlers.release(message.name, message.why)
            case ExpectReport():
                self._handlers.expect(message.report)
            case StartInProcess() | RelayedMessage() | SignalAgent() if self._in_process is not None:
                self._in_process(message)
            case StartInProcess():  # without a host, the agent counts as killed
                self.send(RunOver(line=message.line, status=-signal.SIGKILL))
            case DeliverMessage():
                await self._has_store.wait()  # until `delivering_to` is entered
                assert self._store is not None
                await self._store(message.envelope())

    async def _handle_request(self, request: RootMessage) -> CompactionDone | NotCompacted:
        assert isinstance(request, CompactJob), "the root makes no other request"
        compact = self._handlers.compact
        return NotCompacted(reason=self._compact_refusal) if compact is None else await compact(request)


@asynccontextmanager
async def open_root_connection(stream: trio.SocketStream) -> AsyncIterator[RootConnection]:
    """Connect to the root over *stream* until the block ends; as `open_root_connection_on`."""
    lost: ControlLost | None = None
    async with open_channel(stream, root_decoder) as channel:
        try:
            async with open_root_connection_on(channel) as root:
                yield root
        except ControlLost as exc:
            lost = exc
    if lost is not None:  # Raised outside of the nursery, so that it is not wrapped in a group.
        raise lost


@asynccontextmanager
async def open_root_connection_on(frames: MessageChannel[RootFrame]) -> AsyncIterator[RootConnection]:
    """Connect to the root on *frames* until the block ends; trusted mail waits until `delivering_to` is entered.

    If the root has gone or sends invalid data, the block is cancelled and `ControlLost` raised, because an agent
    without a supervisor must end.
    """
    lost: ControlLost | None = None
    channel: RequestChannel[RootMessage] = RequestChannel(frames)
    root = RootConnection(channel)
    async with trio.open_nursery() as nursery:

        async def listen() -> None:
            nonlocal lost
            try:
                await root.serve(nursery)
            except ControlLost as exc:
                lost = exc
                # Cancelled before the channel is closed, so that pending requests are cancelled too instead of failing.
                nursery.cancel_scope.cancel()
                channel.close()

        nursery.start_soon(listen, name="control")
        yield root
        nursery.cancel_scope.cancel()
    if lost is not None:
        raise lost

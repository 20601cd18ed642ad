"""Connection of an agent to the root (supervisor process of the session), as the agent uses it."""

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
"""Function that stores a mail message from the root, which needs no signature, in the mailbox of the agent."""
InProcessMessage = StartInProcess | RelayedMessage | SignalAgent
"""Messages of the root to an agent process about other agents that are tasks of this process."""


NOT_STARTED = "the agent has not started yet; try again soon"


@attrs.frozen(kw_only=True)
class AgentHandlers:
    """Handlers of the root's messages to an agent. Without a running agent, the defaults ignore the messages."""

    release: Callable[[str, str], None] = lambda _name, _why: None
    """Function that ends the agent's wait for the child of the given name, with a reason for the model."""
    expect: Callable[[MessageId], None] = lambda _report: None
    """Function that makes the agent wait, before it ends, for the report with the given message id."""
    compact: Callable[[CompactJob], Awaitable[CompactionDone | NotCompacted]] | None = None
    """Function that runs a requested compaction (summary in place of messages); None if no agent runs: refuse."""


@attrs.define(eq=False)
class RootConnection:
    """Agent's end of the connection to the root (supervisor): handles its messages and gives access to its services."""

    _channel: RequestChannel[RootMessage]
    gate: RemoteGateway = attrs.field(init=False)
    asker: RemotePrompter = attrs.field(init=False)
    services: RemoteServices = attrs.field(init=False)
    _handlers: AgentHandlers = attrs.field(factory=AgentHandlers, init=False)
    _compact_refusal: str = attrs.field(default=NOT_STARTED, init=False)
    _in_process: Callable[[InProcessMessage], None] | None = attrs.field(default=None, init=False)
    """Handler of messages about agents that are tasks of this process; None outside of a `hosting` block."""
    _store: StoreMessage | None = attrs.field(default=None, init=False)
    _has_store: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.gate, self.asker = RemoteGateway(self._channel), RemotePrompter(self._channel)
        self.services = RemoteServices(self._channel)

    @contextmanager
    def delivering_to(self, store: StoreMessage) -> Iterator[None]:
        """Within the block, pass mail from the root to *store*, also earlier mail; later mail waits for a new block."""
        self._store = store
        self._has_store.set()
        try:
            yield
        finally:
            self._has_store = trio.Event()

    @contextmanager
    def handling(self, handlers: AgentHandlers) -> Iterator[None]:
        """Within the block, pass the root's messages about children, reports and compaction to *handlers*."""
        self._handlers = handlers
        try:
            yield
        finally:
            self._handlers, self._compact_refusal = AgentHandlers(), AGENT_GONE

    @contextmanager
    def hosting(self, handler: Callable[[InProcessMessage], None]) -> Iterator[None]:
        """Within the block, pass the root's messages about agents that are tasks of this process to *handler*."""
        self._in_process = handler
        try:
            yield
        finally:
            self._in_process = None

    def send(self, message: WireMessage) -> None:
        """Queue *message* for the root. Raises `ControlLost` if the root has ended, and `FrameTooLarge`."""
        self._channel.send(message)

    def report_activity(self, activity: Activity, what: str = "") -> None:
        """Report to the root that the agent is now in *activity*, such as "idle". Raises `ControlLost`."""
        self.send(ActivityChanged(activity=activity, what=what))

    def report_failure(self, reason: str, *, is_for_user: bool) -> None:
        """Report to the root why the agent fails; *is_for_user* if the user must fix it. Raises `ControlLost`."""
        self.send(RunFailed(reason=reason, is_for_user=is_for_user))

    async def serve(self, nursery: trio.Nursery) -> None:
        """Handle the root's messages, and its requests in *nursery*, until the root ends; then raise `ControlLost`."""
        await self._channel.serve(nursery, self._handle_message, self._handle_request)
        raise ControlLost("the root process of the session has ended; `coterie resume` continues the session")

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
    """Open the connection to the root over *stream*. If the root ends, cancel the block and raise `ControlLost`."""
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
    """Open the connection to the root over the channel *frames*, and handle messages of the root within the block.

    Mail from the root, and all messages after it, wait until `delivering_to` is entered. If the root ends or sends
    invalid data, the block is cancelled and `ControlLost` raised: an agent must not run without its supervisor.
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

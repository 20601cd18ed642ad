"""The root's side of the connection to one agent process: model calls, new agents, prompts, plans and compaction."""

from collections.abc import Callable
from functools import partial

import attrs
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.gateway_protocol import Gateway, Permit
from coterie.agents.permissions.types import DenyCall, UserPrompter
from coterie.agents.root_link.approval_messages import DecidePlan, PromptAnswered, PromptUser, SubmitPlan
from coterie.agents.root_link.channel import MessageChannel
from coterie.agents.root_link.job_messages import AGENT_GONE, CompactionDone, CompactJob, NotCompacted, Pivot
from coterie.agents.root_link.messages import (
    ActivityChanged,
    AdmitCall,
    AgentFrame,
    AgentMessage,
    AwaitIdle,
    CallAbandoned,
    CallUsed,
    CallVoided,
    DeliverMessage,
    RateLimited,
    RelayedMessage,
    ReplyBegan,
    RequestShutdown,
    RunFailed,
    RunOver,
    Spawn,
    StopTask,
)
from coterie.agents.root_link.remote_services import NO_USER
from coterie.agents.root_link.request_channel import RequestChannel
from coterie.agents.root_link.spawn_request import Spawner, SpawnRefused
from coterie.agents.root_link.wire_format import WireMessage
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import EnvelopeCorrupt
from coterie.orchestrator.approvals.agent_approvals import AgentApprovals
from coterie.orchestrator.supervisor.in_process_agents import InProcessAgents


@attrs.define(eq=False)
class AgentConnection:
    """Server in the root for the messages of one agent process. `run` returns when the process disconnects."""

    _gateway: Gateway
    """Gateway client that admits the agent's model calls. The caller closes it after the agent has ended."""
    _on_message: Callable[[AgentMessage], None]
    """Called with each message and request of this agent, before it is handled."""
    _spawner: Spawner
    _prompter: UserPrompter | None = None
    """Asks the user for permissions; None denies every permission request of the agent."""
    _agent: str = ""
    """Name of the agent."""
    _approvals: AgentApprovals | None = None
    """Handler of the agent's plans and of its decisions on plans; None if the connection does not support plans."""
    in_process: InProcessAgents = attrs.field(init=False)
    """Subagents that run as tasks in the process of this agent; their messages use this connection too."""
    _channel: RequestChannel[AgentMessage] | None = attrs.field(default=None, init=False)
    _permits: dict[int, tuple[Permit, trio.Event]] = attrs.field(factory=dict, init=False)
    """Permissions for model calls that the agent has now, by number. The event is set when the agent releases one."""
    open_prompts: int = attrs.field(default=0, init=False)
    """Number of permission prompts of this agent that wait for an answer of the user."""

    def __attrs_post_init__(self) -> None:
        self.in_process = InProcessAgents(self.send)

    async def run(self, messages: MessageChannel[AgentFrame]) -> None:
        """Serve *messages* until the agent disconnects. Its unsettled model calls are charged with their maximum price.

        Subagents in its process are then recorded as killed. Raises `ControlLost`, in a group, for an invalid message.
        """
        channel = self._channel = RequestChannel[AgentMessage](messages)
        try:
            async with trio.open_nursery() as nursery:
                on_request = partial(self._handle_request, nursery)
                await channel.serve(nursery, self._handle_message, on_request, self._handle_withdrawal)
                nursery.cancel_scope.cancel()
        finally:
            self.in_process.close()
            channel.close()

    def deliver(self, envelope: Envelope) -> None:
        """Send a mail message to the agent over this trusted connection. Raises `ControlLost` if not connected."""
        self.send(DeliverMessage.of(envelope))

    async def compact(self, pivot: Pivot | None) -> CompactionDone | NotCompacted:
        """Ask the agent to replace a part of its conversation by a summary, and wait for the result.

        *pivot* is the part; None for the older part. May be called concurrently. Cancellation does not stop the
        compaction. Raises `ControlLost` without a connection.
        """
        if self._channel is None or self._channel.is_closed:
            raise ControlLost("the agent has no connected process; send it a message, which starts one")
        try:
            return await self._channel.request(CompactJob(pivot=pivot))
        except ControlLost:
            return NotCompacted(reason=AGENT_GONE)

    def send(self, message: WireMessage) -> None:
        """Send *message* to the agent process. Raises `ControlLost` if it has not connected yet or has disconnected."""
        if self._channel is None:
            raise ControlLost("the process of the agent is starting and has not connected yet; try again soon")
        self._channel.send(message)

    async def _handle_message(self, message: AgentMessage) -> None:
        if isinstance(message, RelayedMessage | RunOver):
            self.in_process.handle(message)  # a message of or about an in-process agent
            return
        self._on_message(message)
        match message:
            case ActivityChanged() | RunFailed():
                pass  # handled by `_on_message`
            case RateLimited():
                self._gateway.cool_down(message.seconds)
            case ReplyBegan():
                self._permit(message.permit).begin()
            case CallUsed():
                self._permit(message.permit).settle(message.usage, is_whole=message.is_whole)
            case CallVoided():
                self._permit(message.permit).void()
            case CallAbandoned():
                # Not held if admission was refused or is pending.
                if (held := self._permits.get(message.permit)) is not None:
                    _, is_released = held
                    is_released.set()

    async def _handle_request(self, nursery: trio.Nursery, request: AgentMessage) -> object:
        self._on_message(request)
        match request:
            case AdmitCall():
                # The permit outlives the request: the agent holds it until it releases it.
                await nursery.start(self._hold_permit, request)
            case PromptUser():
                return await self._prompt(request)
            case SubmitPlan():
                return await self._require_approvals().submit(request)
            case DecidePlan():
                return await self._require_approvals().decide(request)
            case Spawn():
                return await self._spawner.spawn(request.request)
            case StopTask():
                await self._spawner.stop(request.name)
            case AwaitIdle():
                await self._spawner.wait_until_idle()
            case RequestShutdown():
                try:
                    envelope = request.envelope()
                except EnvelopeCorrupt as exc:
                    raise SpawnRefused(str(exc)) from exc
                await self._spawner.request_shutdown(envelope)
        return None

    async def _handle_withdrawal(self, request: AgentMessage) -> None:
        """Withdraw a plan or prompt for which the agent no longer waits. Those of an agent that died stay open."""
        match request:
            case SubmitPlan():
                await self._require_approvals().withdraw(request)
            case PromptUser() if self._approvals is not None:
                await self._approvals.withdraw_prompt(attrs.evolve(request.question(), agent=self._agent))

    async def _hold_permit(
        self, request: AdmitCall, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Wait until the gateway admits the call; hold the permit until the agent releases it. Raises `BudgetSpent`."""
        # The root uses its own price table.
        intent = attrs.evolve(request.intent, model=known_models().get(request.intent.model.id))
        async with self._gateway.admit(intent) as permit:
            is_released = trio.Event()
            self._permits[request.permit] = permit, is_released
            try:
                task_status.started()
                await is_released.wait()
            finally:
                del self._permits[request.permit]

    def _permit(self, number: int) -> Permit:
        try:
            return self._permits[number][0]
        except KeyError as exc:
            raise ControlLost(f"the agent reported on unknown model call {number}; its process is killed") from exc

    async def _prompt(self, request: PromptUser) -> PromptAnswered:
        if self._prompter is None:
            return PromptAnswered.of(DenyCall(NO_USER))
        self.open_prompts += 1
        try:
            answer = await self._prompter.ask(attrs.evolve(request.question(), agent=self._agent))
        finally:
            self.open_prompts -= 1
        return PromptAnswered.of(answer)

    def _require_approvals(self) -> AgentApprovals:
        if self._approvals is None:
            raise ControlLost("this agent cannot submit or decide plans; it must work without an approved plan")
        return self._approvals

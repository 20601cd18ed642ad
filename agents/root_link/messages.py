"""Messages between an agent and the root of its session."""

from decimal import Decimal
from typing import Literal

import attrs
import msgspec

from coterie.agents.errors import BudgetScope, BudgetSpent, BudgetUnit
from coterie.agents.loop.conversation.cache_markers import Ttl
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.usage import Usage
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.root_link.approval_messages import (
    DecidePlan,
    PlanDecided,
    PlanReviewed,
    PromptAnswered,
    PromptUser,
    SubmitPlan,
    WithdrawPlan,
    WithdrawPrompt,
)
from coterie.agents.root_link.job_messages import CompactionDone, CompactJob, NotCompacted
from coterie.agents.root_link.message import WireMessage
from coterie.agents.root_link.spawn_request import Isolation, MemoryScope, Process, Spawned, SpawnRequest
from coterie.mailbox.envelope import Envelope, MessageId


class AdmitCall(WireMessage, tag="admit", frozen=True):
    """May this call be sent? Answered by `CallAdmitted` or `CallRefused`; ended by `CallAbandoned`, answered or not."""

    call: int
    """Names the call on this line."""
    agent: str
    purpose: str
    model: str
    prompt_tokens: int
    max_tokens: int
    prefix: bytes
    expected_read: int | None
    shared: bytes | None
    ttl: Ttl

    @classmethod
    def of(cls, call: int, intent: CallIntent) -> "AdmitCall":
        """The question whether *intent* may be carried out."""
        members = attrs.asdict(intent, recurse=False) | {"model": intent.model.id}
        return cls(call=call, **members)

    def intent(self) -> CallIntent:
        """What the agent is going to do. Raises `ConfigInvalid` for a model that is not in the table."""
        members = {name: getattr(self, name) for name in self.__struct_fields__ if name != "call"}
        return CallIntent(**members | {"model": known_models().get(self.model)})


class ReplyBegan(WireMessage, tag="began", frozen=True):
    """The reply to a call has begun."""

    call: int


class CallUsed(WireMessage, tag="used", frozen=True):
    """What a call has used."""

    call: int
    usage: Usage
    is_whole: bool


class CallVoided(WireMessage, tag="voided", frozen=True):
    """A call cost nothing."""

    call: int


class CallAbandoned(WireMessage, tag="left", frozen=True):
    """A call is over, or not wanted any more."""

    call: int


class RateLimited(WireMessage, tag="cool_down", frozen=True):
    """The service told one of us to wait."""

    seconds: float


class CallAdmitted(WireMessage, tag="admitted", frozen=True):
    """The call may be sent."""

    call: int


class CallRefused(WireMessage, tag="refused", frozen=True):
    """The call may not be sent, because a budget does not bear it."""

    call: int
    budget: Decimal
    spent: Decimal
    reserve: Decimal
    scope: BudgetScope
    name: str | None
    unit: BudgetUnit

    @classmethod
    def of(cls, call: int, error: BudgetSpent) -> "CallRefused":
        """What the gate said."""
        return cls(call=call, **attrs.asdict(error))

    def error(self) -> BudgetSpent:
        """The error that the agent's own gate would have raised."""
        members = {name: getattr(self, name) for name in self.__struct_fields__ if name != "call"}
        return BudgetSpent(**members)


Activity = Literal["running", "waiting", "idle", "plan_pending"]
"""What an agent says of itself. waiting: for something that it names. The other states are the supervisor's to know."""


class ActivityChanged(WireMessage, tag="doing", frozen=True):
    """The agent does something else from now on."""

    activity: Activity
    what: str = ""
    """What it waits for."""


class Spawn(WireMessage, tag="spawn", frozen=True):
    """Start a subagent. Answered by `SpawnStarted` or `SpawnFailed`."""

    call: int
    task: str
    definition: str
    name: str | None
    model: str | None
    fork: str | None
    stays: bool
    isolation: Isolation | None
    plan: PlanPolicy | None = None
    budget_usd: Decimal | None = None
    memory: MemoryScope | None = None
    process: Process | None = None

    @classmethod
    def of(cls, call: int, request: SpawnRequest) -> "Spawn":
        """The word for *request*."""
        return cls(call=call, **attrs.asdict(request, recurse=False))

    def request(self) -> SpawnRequest:
        """What is wanted."""
        members = {name: getattr(self, name) for name in self.__struct_fields__ if name != "call"}
        return SpawnRequest(**members)


class SpawnStarted(WireMessage, tag="begun", frozen=True):
    """The subagent is at work."""

    call: int
    name: str
    incarnation: int
    report: str

    @classmethod
    def of(cls, call: int, spawned: Spawned) -> "SpawnStarted":
        """The word for *spawned*."""
        return cls(call=call, **attrs.asdict(spawned))

    def spawned(self) -> Spawned:
        """What the parent gets to know."""
        return Spawned(name=self.name, incarnation=self.incarnation, report=MessageId(self.report))


class SpawnFailed(WireMessage, tag="not_begun", frozen=True):
    """There is no subagent."""

    call: int
    reason: str


class StopTask(WireMessage, tag="stop_task", frozen=True):
    """Stop an agent that this one has started. Answered by `TaskStopped`."""

    call: int
    name: str


class TaskStopped(WireMessage, tag="task_stopped", frozen=True):
    """It is over, with all that it had started."""

    call: int
    refusal: str | None = None
    """Why nothing was stopped."""


class RequestShutdown(WireMessage, tag="ask_to_end", frozen=True):
    """Hand on to an agent that it is to end. Answered by `ShutdownForwarded`."""

    call: int
    content: msgspec.Raw
    """The bytes of an envelope, for one start of one agent."""

    @classmethod
    def of(cls, call: int, envelope: Envelope) -> "RequestShutdown":
        """The word for *envelope*."""
        return cls(call=call, content=msgspec.Raw(envelope.to_bytes()))

    def envelope(self) -> Envelope:
        """The request. Raises `EnvelopeCorrupt`."""
        return Envelope.from_bytes(bytes(self.content))


class ShutdownForwarded(WireMessage, tag="asked_to_end", frozen=True):
    """The agent has it, or why not."""

    call: int
    refusal: str | None = None


class AwaitIdle(WireMessage, tag="await_rest", frozen=True):
    """Say when those whom this agent has started have nothing left to do. Answered by `ChildrenIdle`."""

    call: int


class ChildrenIdle(WireMessage, tag="at_rest", frozen=True):
    """None of them is at work, and no mail waits in a file that would wake one."""

    call: int


class DeliverMessage(WireMessage, tag="deliver", frozen=True):
    """A message that is believed because it comes this way."""

    content: msgspec.Raw
    """The bytes of an envelope."""

    @classmethod
    def of(cls, envelope: Envelope) -> "DeliverMessage":
        """The word that hands over *envelope*."""
        return cls(content=msgspec.Raw(envelope.to_bytes()))

    def envelope(self) -> Envelope:
        """The message. Raises `EnvelopeCorrupt`."""
        return Envelope.from_bytes(bytes(self.content))


class StopWaiting(WireMessage, tag="release", frozen=True):
    """Do not wait any longer for this agent, which works on; its report will come as mail."""

    name: str
    why: str = ""
    """Empty if the user says so."""


class ExpectReport(WireMessage, tag="expect", frozen=True):
    """Somebody was started for this agent, which has not asked for it: a report will come as mail."""

    report: MessageId


class StartInProcess(WireMessage, tag="run_here", frozen=True):
    """Run this agent as a task of your process. It and the root talk on *line*, a new one inside this one."""

    line: int
    duty: msgspec.Raw
    """What a process of its own would be started with."""


class RelayedMessage(WireMessage, tag="relayed", frozen=True):
    """What one end of a line inside this one says to the other."""

    line: int
    said: msgspec.Raw


class SignalAgent(WireMessage, tag="signal", frozen=True):
    """What would be sent to a process: SIGKILL ends the agent on *line*, any other the turn that it is at."""

    line: int
    number: int


class RunOver(WireMessage, tag="over", frozen=True):
    """The agent on *line* has ended, and nothing more comes of it."""

    line: int
    status: int
    """As that of a process: 0 for one that has done its work, negative for one that was made to end."""


class RunFailed(WireMessage, tag="unable", frozen=True):
    """Who says it ends, because it cannot do its work."""

    reason: str
    is_for_user: bool = False
    """Whether the user gave what cannot be used, and must mend it."""


GatewayMessage = AdmitCall | ReplyBegan | CallUsed | CallVoided | CallAbandoned | RateLimited
AgentRequest = (
    ActivityChanged
    | Spawn
    | PromptUser
    | WithdrawPrompt
    | RunFailed
    | SubmitPlan
    | WithdrawPlan
    | DecidePlan
    | StopTask
    | RequestShutdown
    | AwaitIdle
)
OwnMessage = GatewayMessage | AgentRequest | CompactionDone | NotCompacted
"""What an agent says for itself."""
AgentMessage = OwnMessage | RelayedMessage | RunOver
RootMessage = (
    CallAdmitted
    | CallRefused
    | SpawnStarted
    | SpawnFailed
    | TaskStopped
    | ShutdownForwarded
    | ChildrenIdle
    | DeliverMessage
    | PromptAnswered
    | PlanReviewed
    | PlanDecided
    | StopWaiting
    | ExpectReport
    | CompactJob
    | StartInProcess
    | RelayedMessage
    | SignalAgent
)

agent_decoder: msgspec.json.Decoder[AgentMessage] = msgspec.json.Decoder(AgentMessage)
root_decoder: msgspec.json.Decoder[RootMessage] = msgspec.json.Decoder(RootMessage)

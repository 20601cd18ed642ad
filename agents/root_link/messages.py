"""Messages between an agent and the root (supervisor process of the session), in both directions."""

from typing import Literal, Self

import msgspec

from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.usage import Usage
from coterie.agents.root_link.approval_messages import DecidePlan, PromptUser, SubmitPlan
from coterie.agents.root_link.job_messages import CompactJob
from coterie.agents.root_link.spawn_request import Spawned, SpawnRequest
from coterie.agents.root_link.wire_format import Frame, WireMessage, WireRequest
from coterie.mailbox.envelope import Envelope, MessageId


class AdmitCall(WireRequest[None], tag="admit", frozen=True):
    """Request of an agent to the root (supervisor): permit a model call. The reply arrives when the call may start.

    May fail with `BudgetSpent`. The agent sends `CallAbandoned` when the call has succeeded, failed or was cancelled.
    """

    permit: int
    """Number that the agent chooses for the permit, so that it can abandon the call before the reply arrives."""
    intent: CallIntent


class PermitMessage(WireMessage, frozen=True):
    """Base class of messages of an agent to the root about one model call; `permit` is the number of its permit."""

    permit: int


class ReplyBegan(PermitMessage, tag="began", frozen=True):
    """Message of an agent to the root: the model has begun to reply to a call, so its prompt is in the cache."""


class CallUsed(PermitMessage, tag="used", frozen=True):
    """Message of an agent to the root: the tokens that a model call has used, from which the root computes its cost."""

    usage: Usage
    is_whole: bool
    """False if the reply broke off; then the root assumes the largest possible output."""


class CallVoided(PermitMessage, tag="voided", frozen=True):
    """Message of an agent to the root: a model call cost nothing, as it was not sent or the API rejected it."""


class CallAbandoned(PermitMessage, tag="left", frozen=True):
    """Message of an agent to the root: release the permit: the call ended or was cancelled, maybe while waiting."""


class RateLimited(WireMessage, tag="cool_down", frozen=True):
    """Message of an agent to the root: the API is overloaded or limits the rate; permit no model call for `seconds`."""

    seconds: float


Activity = Literal["running", "waiting", "idle", "plan_pending"]
"""Activity that an agent reports: in a turn, waiting for other agents, without work, waiting for a plan decision."""


class ActivityChanged(WireMessage, tag="doing", frozen=True):
    """Message of an agent to the root (supervisor): its activity has changed, for example from "running" to "idle"."""

    activity: Activity
    what: str = ""
    """Object of the wait, such as "2 agents" or the first line of the submitted plan; may be empty."""


class Spawn(WireRequest[Spawned], tag="spawn", frozen=True):
    """Request of an agent to the root (supervisor): start another agent as its child. May fail with `SpawnRefused`."""

    runs_to_end = True
    request: SpawnRequest


class StopTask(WireRequest[None], tag="stop_task", frozen=True):
    """Request of an agent to the root: stop its descendant `name` and all below it. May fail with `SpawnRefused`."""

    runs_to_end = True
    name: str


class EnvelopeMessage(WireMessage, frozen=True):
    """Base class of messages between root and agent that carry an envelope (one mail message with its addresses)."""

    content: msgspec.Raw
    """The mail message with its addresses as JSON, as `Envelope.to_bytes` returns it."""

    @classmethod
    def of(cls, envelope: Envelope) -> Self:
        """Return the message that carries *envelope*, a mail message."""
        return cls(content=msgspec.Raw(envelope.to_bytes()))

    def envelope(self) -> Envelope:
        """Return the mail message in `content`, decoded. Raises `EnvelopeCorrupt` if it is invalid."""
        return Envelope.from_bytes(bytes(self.content))


class RequestShutdown(WireRequest[None], EnvelopeMessage, tag="ask_to_end", frozen=True):
    """Request of an agent to the root: send a mail that asks another agent to end. May fail with `SpawnRefused`."""

    runs_to_end = True


class AwaitIdle(WireRequest[None], tag="await_rest", frozen=True):
    """Request of an agent to the root. The reply arrives when all descendants of the agent are idle.

    At that time no descendant is working, and no unread mail in its mailbox file would give it work.
    """


class DeliverMessage(EnvelopeMessage, tag="deliver", frozen=True):
    """Message of the root to an agent: mail for its inbox, trusted without a signature, because the root sent it."""


class StopWaiting(WireMessage, tag="release", frozen=True):
    """Message of the root to an agent: stop waiting for its child `name`, which works on and reports by mail."""

    name: str
    why: str = ""
    """Reason to stop waiting, for the model, such as "a plan waits for your answer"; empty if the user wants it."""


class ExpectReport(WireMessage, tag="expect", frozen=True):
    """Message of the root to an agent: the user started a child for it, whose report will arrive as mail."""

    report: MessageId


class StartInProcess(WireMessage, tag="run_here", frozen=True):
    """Message of the root to an agent process: run another agent in it as a task, with channel number `line`."""

    line: int
    duty: msgspec.Raw
    """Start parameters of the agent: an `AgentSpec` as JSON."""


class RelayedMessage(WireMessage, tag="relayed", frozen=True):
    """Frame from or for an agent that is a task of another agent's process, wrapped with its channel number `line`."""

    line: int
    said: msgspec.Raw


class SignalAgent(WireMessage, tag="signal", frozen=True):
    """Signal of the root for the agent task on channel `line`: SIGKILL cancels the task, others only its turn."""

    line: int
    number: int


class RunOver(WireMessage, tag="over", frozen=True):
    """Message of a process to the root: its agent task on channel `line` has ended and sends no more messages."""

    line: int
    status: int
    """Exit status, as of a process: 0 for success, positive for a failure, negative if the agent was killed."""


class RunFailed(WireMessage, tag="unable", frozen=True):
    """The agent or root that sends this ends without success; as a reply on the control socket: a request failed."""

    reason: str
    is_for_user: bool = False
    """True if the user must correct an input, such as a setting or a file; a restart would then fail again."""


OwnMessage = (
    AdmitCall
    | ReplyBegan
    | CallUsed
    | CallVoided
    | CallAbandoned
    | RateLimited
    | ActivityChanged
    | RunFailed
    | Spawn
    | StopTask
    | RequestShutdown
    | AwaitIdle
    | PromptUser
    | SubmitPlan
    | DecidePlan
)
"""Messages and requests of an agent about its own run, unlike those that its process forwards for other agents."""
AgentMessage = OwnMessage | RelayedMessage | RunOver
RootMessage = DeliverMessage | StopWaiting | ExpectReport | CompactJob | StartInProcess | RelayedMessage | SignalAgent
AgentFrame = Frame[AgentMessage]
RootFrame = Frame[RootMessage]

agent_decoder: msgspec.json.Decoder[AgentFrame] = msgspec.json.Decoder(AgentFrame)
root_decoder: msgspec.json.Decoder[RootFrame] = msgspec.json.Decoder(RootFrame)

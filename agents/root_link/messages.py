"""Messages between an agent and the root of its session."""

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
    """Request for admission of a model call; may fail with `BudgetSpent`.

    The agent sends `CallAbandoned` when the call has ended, whether it succeeded, failed or was cancelled.
    """

    permit: int
    """Number of the permit; chosen by the agent, so that it can abandon the call before the reply arrives."""
    intent: CallIntent


class PermitMessage(WireMessage, frozen=True):
    """Base of messages about the call of a permit."""

    permit: int


class ReplyBegan(PermitMessage, tag="began", frozen=True):
    """Message that the reply to a call has begun."""


class CallUsed(PermitMessage, tag="used", frozen=True):
    """Message with the usage of a call."""

    usage: Usage
    is_whole: bool


class CallVoided(PermitMessage, tag="voided", frozen=True):
    """Message that a call cost nothing."""


class CallAbandoned(PermitMessage, tag="left", frozen=True):
    """Message that a call is over or was cancelled, also before its admission."""


class RateLimited(WireMessage, tag="cool_down", frozen=True):
    """Message that the API asked for a pause."""

    seconds: float


Activity = Literal["running", "waiting", "idle", "plan_pending"]
"""Activity that an agent reports. "waiting" comes with a description; the supervisor knows the other states."""


class ActivityChanged(WireMessage, tag="doing", frozen=True):
    """Message that the activity of the agent has changed."""

    activity: Activity
    what: str = ""
    """Description of what the agent waits for."""


class Spawn(WireRequest[Spawned], tag="spawn", frozen=True):
    """Request to spawn a subagent; may fail with `SpawnRefused`."""

    runs_to_end = True
    request: SpawnRequest


class StopTask(WireRequest[None], tag="stop_task", frozen=True):
    """Request to stop an agent that this agent spawned, with its descendants; may fail with `SpawnRefused`."""

    runs_to_end = True
    name: str


class EnvelopeMessage(WireMessage, frozen=True):
    """Base of messages that carry mail."""

    content: msgspec.Raw
    """Bytes of an envelope."""

    @classmethod
    def of(cls, envelope: Envelope) -> Self:
        """Wrap *envelope*."""
        return cls(content=msgspec.Raw(envelope.to_bytes()))

    def envelope(self) -> Envelope:
        """Decode the envelope in `content`. Raises `EnvelopeCorrupt`."""
        return Envelope.from_bytes(bytes(self.content))


class RequestShutdown(WireRequest[None], EnvelopeMessage, tag="ask_to_end", frozen=True):
    """Request to forward a shutdown request to one incarnation of an agent; may fail with `SpawnRefused`."""

    runs_to_end = True


class AwaitIdle(WireRequest[None], tag="await_rest", frozen=True):
    """Request that returns when all descendants of this agent are idle.

    None of them is running then, and no mail in a file would wake one of them.
    """


class DeliverMessage(EnvelopeMessage, tag="deliver", frozen=True):
    """Message with mail that the agent trusts because the root sent it."""


class StopWaiting(WireMessage, tag="release", frozen=True):
    """Message to stop waiting for an agent, which continues; its report will arrive as mail."""

    name: str
    why: str = ""
    """Reason; empty if the user requested it."""


class ExpectReport(WireMessage, tag="expect", frozen=True):
    """Message that the root spawned a child for this agent without its request; a report will arrive as mail."""

    report: MessageId


class StartInProcess(WireMessage, tag="run_here", frozen=True):
    """Message to run an agent as a task of this process, with a new channel *line* inside this channel."""

    line: int
    duty: msgspec.Raw
    """Spec of the agent."""


class RelayedMessage(WireMessage, tag="relayed", frozen=True):
    """Frame of the channel *line* inside this channel."""

    line: int
    said: msgspec.Raw


class SignalAgent(WireMessage, tag="signal", frozen=True):
    """Signal for the in-process agent of channel *line*: SIGKILL kills the agent, others interrupt its turn."""

    line: int
    number: int


class RunOver(WireMessage, tag="over", frozen=True):
    """Message that the in-process agent of channel *line* has ended and sends no more messages."""

    line: int
    status: int
    """Exit status as of a process: 0 for success, negative for an agent that was killed."""


class RunFailed(WireMessage, tag="unable", frozen=True):
    """Message that the sender ends because it cannot do its work."""

    reason: str
    is_for_user: bool = False
    """True if the user must correct an input."""


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
"""Messages and requests that an agent sends about itself."""
AgentMessage = OwnMessage | RelayedMessage | RunOver
RootMessage = DeliverMessage | StopWaiting | ExpectReport | CompactJob | StartInProcess | RelayedMessage | SignalAgent
AgentFrame = Frame[AgentMessage]
RootFrame = Frame[RootMessage]

agent_decoder: msgspec.json.Decoder[AgentFrame] = msgspec.json.Decoder(AgentFrame)
root_decoder: msgspec.json.Decoder[RootFrame] = msgspec.json.Decoder(RootFrame)

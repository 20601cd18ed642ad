"""Messages between an agent and the root of its session."""

from typing import Literal

import msgspec

from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.usage import Usage
from coterie.agents.root_link.approval_messages import DecidePlan, PromptUser, SubmitPlan
from coterie.agents.root_link.job_messages import CompactJob
from coterie.agents.root_link.spawn_request import Spawned, SpawnRequest
from coterie.agents.root_link.wire_format import Frame, WireMessage, WireRequest
from coterie.mailbox.envelope import Envelope, MessageId


class AdmitCall(WireRequest[None], tag="admit", frozen=True):
    """Asks for admission of a model call; refused with `BudgetSpent`. Ended by `CallAbandoned`, answered or not."""

    permit: int
    """Names the permit; chosen by the agent, which may give it up before it knows the reply."""
    intent: CallIntent


class ReplyBegan(WireMessage, tag="began", frozen=True):
    """The reply to a call has begun."""

    permit: int


class CallUsed(WireMessage, tag="used", frozen=True):
    """Reports the usage of a call."""

    permit: int
    usage: Usage
    is_whole: bool


class CallVoided(WireMessage, tag="voided", frozen=True):
    """A call cost nothing."""

    permit: int


class CallAbandoned(WireMessage, tag="left", frozen=True):
    """A call is over, or not wanted any more."""

    permit: int


class RateLimited(WireMessage, tag="cool_down", frozen=True):
    """The service told one of us to wait."""

    seconds: float


Activity = Literal["running", "waiting", "idle", "plan_pending"]
"""What an agent says of itself. waiting: for something that it names. The other states are the supervisor's to know."""


class ActivityChanged(WireMessage, tag="doing", frozen=True):
    """The agent does something else from now on."""

    activity: Activity
    what: str = ""
    """What it waits for."""


class Spawn(WireRequest[Spawned], tag="spawn", frozen=True):
    """Starts a subagent; refused with `SpawnRefused`."""

    runs_to_end = True
    request: SpawnRequest


class StopTask(WireRequest[None], tag="stop_task", frozen=True):
    """Stops an agent that this one has started, with all that it had started; refused with `SpawnRefused`."""

    runs_to_end = True
    name: str


class RequestShutdown(WireRequest[None], tag="ask_to_end", frozen=True):
    """Forwards a shutdown request to an agent; refused with `SpawnRefused`."""

    runs_to_end = True
    content: msgspec.Raw
    """The bytes of an envelope, for one start of one agent."""

    @classmethod
    def of(cls, envelope: Envelope) -> "RequestShutdown":
        """Wrap *envelope*."""
        return cls(content=msgspec.Raw(envelope.to_bytes()))

    def envelope(self) -> Envelope:
        """Return the shutdown request. Raises `EnvelopeCorrupt`."""
        return Envelope.from_bytes(bytes(self.content))


class AwaitIdle(WireRequest[None], tag="await_rest", frozen=True):
    """Waits until those whom this agent has started have nothing left to do.

    None of them is at work then, and no mail waits in a file that would wake one.
    """


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
"""Messages and requests that an agent sends for itself."""
AgentMessage = OwnMessage | RelayedMessage | RunOver
RootMessage = DeliverMessage | StopWaiting | ExpectReport | CompactJob | StartInProcess | RelayedMessage | SignalAgent
AgentFrame = Frame[AgentMessage]
RootFrame = Frame[RootMessage]

agent_decoder: msgspec.json.Decoder[AgentFrame] = msgspec.json.Decoder(AgentFrame)
root_decoder: msgspec.json.Decoder[RootFrame] = msgspec.json.Decoder(RootFrame)

"""What an agent and the root of its session say to each other."""

from decimal import Decimal
from typing import Literal

import attrs
import msgspec

from coterie.agents.approvals.policy import PlanPolicy
from coterie.agents.control.approval_words import DecidePlan, PlanDecided, PlanJudged, SubmitPlan, WithdrawPlan
from coterie.agents.control.asking_words import Answered, Ask, TakeBack
from coterie.agents.control.compaction_words import Compact, Compaction, NotCompacted
from coterie.agents.control.gate_words import Admit, Admitted, Began, CoolDown, Left, Refused, Used, Voided
from coterie.agents.control.word import Word
from coterie.agents.spawning import Isolation, MemoryScope, Process, Spawned, SpawnRequest
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.ids import MessageId

Activity = Literal["running", "waiting", "idle", "plan_pending"]
"""What an agent says of itself. waiting: for something that it names. The other states are the supervisor's to know."""


class Doing(Word, tag="doing", frozen=True):
    """The agent does something else from now on."""

    activity: Activity
    what: str = ""
    """What it waits for."""


class Spawn(Word, tag="spawn", frozen=True):
    """Start a subagent. Answered by `Begun` or `NotBegun`."""

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


class Begun(Word, tag="begun", frozen=True):
    """The subagent is at work."""

    call: int
    name: str
    incarnation: int
    report: str

    @classmethod
    def of(cls, call: int, spawned: Spawned) -> "Begun":
        """The word for *spawned*."""
        return cls(call=call, **attrs.asdict(spawned))

    def spawned(self) -> Spawned:
        """What the parent gets to know."""
        return Spawned(name=self.name, incarnation=self.incarnation, report=MessageId(self.report))


class NotBegun(Word, tag="not_begun", frozen=True):
    """There is no subagent."""

    call: int
    reason: str


class StopTask(Word, tag="stop_task", frozen=True):
    """Stop an agent that this one has started. Answered by `TaskStopped`."""

    call: int
    name: str


class TaskStopped(Word, tag="task_stopped", frozen=True):
    """It is over, with all that it had started."""

    call: int
    refusal: str | None = None
    """Why nothing was stopped."""


class AskToEnd(Word, tag="ask_to_end", frozen=True):
    """Hand on to an agent that it is to end. Answered by `AskedToEnd`."""

    call: int
    content: msgspec.Raw
    """The bytes of an envelope, for one start of one agent."""

    @classmethod
    def of(cls, call: int, envelope: Envelope) -> "AskToEnd":
        """The word for *envelope*."""
        return cls(call=call, content=msgspec.Raw(envelope.to_bytes()))

    def envelope(self) -> Envelope:
        """The request. Raises `EnvelopeCorrupt`."""
        return Envelope.from_bytes(bytes(self.content))


class AskedToEnd(Word, tag="asked_to_end", frozen=True):
    """The agent has it, or why not."""

    call: int
    refusal: str | None = None


class AwaitRest(Word, tag="await_rest", frozen=True):
    """Say when those whom this agent has started have nothing left to do. Answered by `AtRest`."""

    call: int


class AtRest(Word, tag="at_rest", frozen=True):
    """None of them is at work, and no mail waits in a file that would wake one."""

    call: int


class Deliver(Word, tag="deliver", frozen=True):
    """A message that is believed because it comes this way."""

    content: msgspec.Raw
    """The bytes of an envelope."""

    @classmethod
    def of(cls, envelope: Envelope) -> "Deliver":
        """The word that hands over *envelope*."""
        return cls(content=msgspec.Raw(envelope.to_bytes()))

    def envelope(self) -> Envelope:
        """The message. Raises `EnvelopeCorrupt`."""
        return Envelope.from_bytes(bytes(self.content))


class Release(Word, tag="release", frozen=True):
    """Do not wait any longer for this agent, which works on; its report will come as mail."""

    name: str
    why: str = ""
    """Empty if the user says so."""


class Expect(Word, tag="expect", frozen=True):
    """Somebody was started for this agent, which has not asked for it: a report will come as mail."""

    report: MessageId


class RunHere(Word, tag="run_here", frozen=True):
    """Run this agent as a task of your process. It and the root talk on *line*, a new one inside this one."""

    line: int
    duty: msgspec.Raw
    """What a process of its own would be started with."""


class Relayed(Word, tag="relayed", frozen=True):
    """What one end of a line inside this one says to the other."""

    line: int
    said: msgspec.Raw


class Signal(Word, tag="signal", frozen=True):
    """What would be sent to a process: SIGKILL ends the agent on *line*, any other the turn that it is at."""

    line: int
    number: int


class Over(Word, tag="over", frozen=True):
    """The agent on *line* has ended, and nothing more comes of it."""

    line: int
    status: int
    """As that of a process: 0 for one that has done its work, negative for one that was made to end."""


class Unable(Word, tag="unable", frozen=True):
    """Who says it ends, because it cannot do its work."""

    reason: str
    is_for_user: bool = False
    """Whether the user gave what cannot be used, and must mend it."""


GateWord = Admit | Began | Used | Voided | Left | CoolDown
Wish = (
    Doing | Spawn | Ask | TakeBack | Unable | SubmitPlan | WithdrawPlan | DecidePlan | StopTask | AskToEnd | AwaitRest
)
OwnWord = GateWord | Wish | Compaction | NotCompacted
"""What an agent says for itself."""
AgentWord = OwnWord | Relayed | Over
RootWord = (
    Admitted
    | Refused
    | Begun
    | NotBegun
    | TaskStopped
    | AskedToEnd
    | AtRest
    | Deliver
    | Answered
    | PlanJudged
    | PlanDecided
    | Release
    | Expect
    | Compact
    | RunHere
    | Relayed
    | Signal
)

agent_words: msgspec.json.Decoder[AgentWord] = msgspec.json.Decoder(AgentWord)
root_words: msgspec.json.Decoder[RootWord] = msgspec.json.Decoder(RootWord)

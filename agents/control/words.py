"""What an agent and the root of its session say to each other."""

from decimal import Decimal
from typing import Literal

import attrs
import msgspec

from coterie.agents.conversation.markers import Ttl
from coterie.agents.errors import BudgetScope, BudgetSpent, BudgetUnit
from coterie.agents.gate import Intent
from coterie.agents.models import known_models
from coterie.agents.spawning import Spawned, SpawnRequest
from coterie.agents.usage import Usage
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.ids import MessageId

Activity = Literal["running", "waiting", "idle", "plan_pending"]
"""What an agent says of itself. waiting: for something that it names. The other states are the supervisor's to know."""


class Word(msgspec.Struct, frozen=True, kw_only=True, tag_field="word"):
    """Base of all of them. One that the other end does not know is the end of the line: both are of one version."""


class Admit(Word, tag="admit", frozen=True):
    """May this call be sent? Answered by `Admitted` or `Refused`; ended by `Left`, answered or not."""

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
    def of(cls, call: int, intent: Intent) -> "Admit":
        """The question whether *intent* may be carried out."""
        members = attrs.asdict(intent, recurse=False) | {"model": intent.model.id}
        return cls(call=call, **members)

    def intent(self) -> Intent:
        """What the agent is going to do. Raises `ConfigInvalid` for a model that is not in the table."""
        members = {name: getattr(self, name) for name in self.__struct_fields__ if name != "call"}
        return Intent(**members | {"model": known_models().get(self.model)})


class Began(Word, tag="began", frozen=True):
    """The reply to a call has begun."""

    call: int


class Used(Word, tag="used", frozen=True):
    """What a call has used."""

    call: int
    usage: Usage
    is_whole: bool


class Voided(Word, tag="voided", frozen=True):
    """A call cost nothing."""

    call: int


class Left(Word, tag="left", frozen=True):
    """A call is over, or not wanted any more."""

    call: int


class CoolDown(Word, tag="cool_down", frozen=True):
    """The service told one of us to wait."""

    seconds: float


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

    @classmethod
    def of(cls, call: int, request: SpawnRequest) -> "Spawn":
        """The word for *request*."""
        return cls(call=call, **attrs.asdict(request))

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


class Admitted(Word, tag="admitted", frozen=True):
    """The call may be sent."""

    call: int


class Refused(Word, tag="refused", frozen=True):
    """The call may not be sent, because a budget does not bear it."""

    call: int
    budget: Decimal
    spent: Decimal
    reserve: Decimal
    scope: BudgetScope
    name: str | None
    unit: BudgetUnit

    @classmethod
    def of(cls, call: int, error: BudgetSpent) -> "Refused":
        """What the gate said."""
        return cls(call=call, **attrs.asdict(error))

    def error(self) -> BudgetSpent:
        """The error that the agent's own gate would have raised."""
        members = {name: getattr(self, name) for name in self.__struct_fields__ if name != "call"}
        return BudgetSpent(**members)


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


AgentWord = Admit | Began | Used | Voided | Left | CoolDown | Doing | Spawn
RootWord = Admitted | Refused | Begun | NotBegun | Deliver

agent_words: msgspec.json.Decoder[AgentWord] = msgspec.json.Decoder(AgentWord)
root_words: msgspec.json.Decoder[RootWord] = msgspec.json.Decoder(RootWord)

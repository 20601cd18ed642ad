"""What an agent and the gate of its session say to each other."""

from decimal import Decimal

import attrs

from coterie.agents.control.word import Word
from coterie.agents.conversation.markers import Ttl
from coterie.agents.errors import BudgetScope, BudgetSpent, BudgetUnit
from coterie.agents.gate import Intent
from coterie.agents.models import known_models
from coterie.agents.usage import Usage


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

"""Errors of one agent, grouped by who must act.

AgentError
├── ConfigInvalid            the user must act: one line, exit code 2
├── ReplyMalformed           the model sent what cannot be read: an observation, never a crash
├── ToolFailed               a tool call did not work: the model can fix it, so the reason is its result
├── TranscriptCorrupt        a transcript is not what was written
├── ControlLost              the root of the session cannot be talked to: the agent must end
│   └── FrameTooLarge        a message does not fit into a frame, and was not sent
├── BudgetSpent              a call could cost more than is left: the user decides whether to go on
└── ModelError               the model call failed; `retryable` says whether asking again may help
    ├── ModelRefusedRequest  400, 401, 403, 404, 413 ...: the request is at fault
    ├── ModelRateLimited     429, with how long to wait
    ├── ModelOverloaded      529, or an `overloaded_error` in the middle of a stream
    ├── ModelFailed          500 and the like, or an `error` event of another kind
    └── ModelUnreachable     no connection, a connection that was dropped, a stream that fell silent
"""

from decimal import Decimal
from typing import Literal

import attrs

from coterie.errors import AgentError

BudgetScope = Literal["session", "subtree", "agent"]
"""Whose budget: everybody's, an agent's with all it has spawned, or one agent's own."""
BudgetUnit = Literal["dollars", "tokens"]


@attrs.define(eq=False)
class ReplyMalformed(AgentError):
    """The model's reply breaks the protocol of its stream."""

    reason: str

    def __str__(self) -> str:
        return f"malformed reply: {self.reason}"


@attrs.define(eq=False)
class ToolFailed(AgentError):
    """A tool call cannot be done as it was asked for."""

    reason: str
    """What is wrong and what would be right, in words for the model."""

    def __str__(self) -> str:
        return self.reason


@attrs.define(eq=False)
class TranscriptCorrupt(AgentError):
    """A record of a transcript cannot be read, or does not follow from the one before."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@attrs.define(eq=False)
class ControlLost(AgentError):
    """The other end of a control socket has gone, has hung, or says what is no word."""

    reason: str

    def __str__(self) -> str:
        return f"the control socket is lost: {self.reason}"


class FrameTooLarge(ControlLost):
    """A message does not fit into a frame; nothing was sent."""


@attrs.define(eq=False)
class BudgetSpent(AgentError):
    """A model call was not admitted, because it could cost more than is left."""

    budget: Decimal
    spent: Decimal
    reserve: Decimal
    """What the call may cost at most."""
    scope: BudgetScope = "session"
    name: str | None = None
    """Whose budget it is; None for the session's."""
    unit: BudgetUnit = "dollars"

    @property
    def left(self) -> Decimal:
        """What may still be spent: nothing, when a call has cost more than it could."""
        return max(self.budget - self.spent, Decimal(0))

    def __str__(self) -> str:
        whose = {"session": "", "subtree": f" for {self.name} and what it has spawned", "agent": f" for {self.name}"}
        if self.unit == "tokens":
            spent, budget, reserve = f"{self.spent:,f}", f"{self.budget:,f} tokens", f"{self.reserve:,f} tokens"
        else:
            spent, budget, reserve = f"${self.spent:.4f}", f"${self.budget}", f"${self.reserve:.4f}"
        return (
            f"{spent} of {budget}{whose[self.scope]} are spent, and the next call may cost up to {reserve}; "
            "raise the budget to go on"
        )


@attrs.define(eq=False)
class ModelError(AgentError):
    """A model call failed."""

    message: str
    status: int | None = None
    """The HTTP status, or None when there was no answer to have one."""
    kind: str | None = None
    """The error type the API named, for example `overloaded_error`."""
    request_id: str | None = None
    retry_after: float | None = None
    """Seconds the server asked us to wait, uncapped."""
    begun: bool = False
    """Whether the reply had begun when the call failed: its cache entry exists and its input is billed."""

    retryable = False

    def __str__(self) -> str:
        status = f"{self.status} " if self.status is not None else ""
        return f"{status}{self.kind or type(self).__name__}: {self.message}"


class ModelRefusedRequest(ModelError):
    """The request is at fault; the same bytes would fail again."""


class ModelRateLimited(ModelError):
    """Too many requests or tokens; everyone who shares the key should wait."""

    retryable = True


class ModelOverloaded(ModelError):
    """The service is busy; everyone who shares the key should wait."""

    retryable = True


class ModelFailed(ModelError):
    """The service failed in a way that may pass."""

    retryable = True


class ModelUnreachable(ModelError):
    """No connection, a dropped one, or a stream that fell silent."""

    retryable = True

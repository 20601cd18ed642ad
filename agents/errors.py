"""Errors of one agent, grouped by the party that must act.

AgentError
├── ConfigInvalid            the user must act: one line, exit code 2
├── ReplyMalformed           the model sent a reply that cannot be parsed: an observation, never a crash
├── ToolFailed               a tool call failed: the model can correct it, so the reason becomes the result
├── TranscriptCorrupt        a transcript is damaged
├── ControlLost              the connection to the root of the session is lost: the agent must end
│   └── FrameTooLarge        a message does not fit into a frame, and was not sent
├── BudgetSpent              a call could cost more than the rest of the budget: the user decides
└── ModelError               the model call failed; `retryable` says if a retry may help
    ├── ModelRefusedRequest  400, 401, 403, 404, 413 ...: the request is invalid
    ├── ModelRateLimited     429, with the time to wait
    ├── ModelOverloaded      529, or an `overloaded_error` in the middle of a stream
    ├── ModelFailed          500 and similar, or an `error` event of another type
    └── ModelUnreachable     no connection, a dropped connection, or a stream without data
"""

from decimal import Decimal
from typing import Literal

import attrs

from coterie.errors import AgentError

BudgetScope = Literal["session", "subtree", "agent"]
"""Scope of a budget: all agents, one agent with its descendants, or one agent alone."""


@attrs.define(eq=False)
class ReplyMalformed(AgentError):
    """Error: the model's reply violates the protocol of its stream."""

    reason: str

    def __str__(self) -> str:
        return f"malformed reply: {self.reason}"


@attrs.define(eq=False)
class ToolFailed(AgentError):
    """Error: a tool call cannot be executed as requested."""

    reason: str
    """Problem and correction, as a text for the model."""

    def __str__(self) -> str:
        return self.reason


@attrs.define(eq=False)
class TranscriptCorrupt(AgentError):
    """Error: a record of a transcript is unreadable, or does not follow from the record before it."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@attrs.define(eq=False)
class ControlLost(AgentError):
    """Error: the other end of a control socket has gone, hangs, or sent an invalid message."""

    reason: str

    def __str__(self) -> str:
        return f"the control socket is lost: {self.reason}"


class FrameTooLarge(ControlLost):
    """Error: a message does not fit into a frame; nothing was sent."""


@attrs.define(eq=False)
class BudgetSpent(AgentError):
    """Error: a model call was not admitted, because it could cost more than the rest of the budget."""

    budget: Decimal
    spent: Decimal
    reserve: Decimal
    """Maximum cost of the call."""
    scope: BudgetScope = "session"
    name: str | None = None
    """Owner of the budget; None for the budget of the session."""
    unit: Literal["dollars", "tokens"] = "dollars"

    def __str__(self) -> str:
        whose = {"session": "", "subtree": f" for {self.name} and its descendants", "agent": f" for {self.name}"}
        if self.unit == "tokens":
            spent, budget, reserve = f"{self.spent:,f}", f"{self.budget:,f} tokens", f"{self.reserve:,f} tokens"
        else:
            spent, budget, reserve = f"${self.spent:.4f}", f"${self.budget}", f"${self.reserve:.4f}"
        return (
            f"{spent} of {budget}{whose[self.scope]} are spent, and the next call may cost up to {reserve}; "
            "raise the budget to continue"
        )


@attrs.define(eq=False)
class ModelError(AgentError):
    """Error: a model call failed."""

    message: str
    status: int | None = None
    """HTTP status; None if there was no HTTP response."""
    kind: str | None = None
    """Error type of the API, for example `overloaded_error`."""
    request_id: str | None = None
    retry_after: float | None = None
    """Seconds that the server asked to wait, without an upper limit."""
    begun: bool = False
    """True if the reply had begun before the call failed: its cache entry exists and its input is billed."""

    retryable = True

    def __str__(self) -> str:
        status = f"{self.status} " if self.status is not None else ""
        return f"{status}{self.kind or type(self).__name__}: {self.message}"


class ModelRefusedRequest(ModelError):
    """Error: the request is invalid; the same bytes would fail again."""

    retryable = False


class ModelRateLimited(ModelError):
    """Error: too many requests or tokens; all users of the API key should wait."""


class ModelOverloaded(ModelError):
    """Error: the service is overloaded; all users of the API key should wait."""


class ModelFailed(ModelError):
    """Error: the service failed temporarily."""


class ModelUnreachable(ModelError):
    """Error: no connection, a dropped connection, or a stream without data."""

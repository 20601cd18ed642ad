"""Error classes of one agent. The class decides how the caller reacts.

AgentError
├── ConfigInvalid            the user must act: one line, exit code 2
├── ReplyMalformed           the reply of the model API cannot be parsed
├── ToolFailed               a tool call failed: the model gets the reason as its result, and can correct the call
├── TranscriptCorrupt        a transcript (the stored conversation of an agent) is damaged
├── ControlLost              the connection to the root process of the session is lost: the agent must end
│   └── FrameTooLarge        a message exceeds the size limit of the connection, and was not sent
├── BudgetSpent              a model call could exceed the budget, and was not sent: the user can raise the budget
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
"""Agents that spend from a budget: all agents of the session, one agent with its descendants, or one agent alone."""


@attrs.define(eq=False)
class ReplyMalformed(AgentError):
    """Error: the event stream of a model reply violates the protocol of the API."""

    reason: str

    def __str__(self) -> str:
        return f"malformed reply: {self.reason}"


@attrs.define(eq=False)
class ToolFailed(AgentError):
    """Error: a tool call cannot be executed as requested. The model receives the reason as the result of the call."""

    reason: str
    """Text for the model: the problem, and how to correct the call."""

    def __str__(self) -> str:
        return self.reason


@attrs.define(eq=False)
class TranscriptCorrupt(AgentError):
    """Error: a record in a transcript (stored conversation) is unreadable, or contradicts the records before it."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@attrs.define(eq=False)
class ControlLost(AgentError):
    """Error: the connection of an agent, or of a client such as the CLI, with the session's root process is lost.

    The process at the other end has ended, has not connected yet, does not respond, or sent an invalid message.
    """

    reason: str

    def __str__(self) -> str:
        return f"the control socket is lost: {self.reason}"


class FrameTooLarge(ControlLost):
    """Error: a message exceeds the size limit of the connection. Nothing was sent."""


@attrs.define(eq=False)
class BudgetSpent(AgentError):
    """Error: a model call was not sent, because it could cost more than what is left of a budget."""

    budget: Decimal
    spent: Decimal
    reserve: Decimal
    """Largest possible cost of the rejected call, in dollars or tokens as `unit` says."""
    scope: BudgetScope = "session"
    name: str | None = None
    """Name of the agent that has the budget; None for the budget of the whole session."""
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
    """Seconds that the server asked the client to wait, as sent, however long; None if it did not ask."""
    begun: bool = False
    """True if the reply had begun before the call failed. Then the prompt is cached, and its tokens are billed."""

    retryable = True

    def __str__(self) -> str:
        status = f"{self.status} " if self.status is not None else ""
        return f"{status}{self.kind or type(self).__name__}: {self.message}"


class ModelRefusedRequest(ModelError):
    """Error: the API rejected the request, e.g. as invalid or not permitted. The same request would fail again."""

    retryable = False


class ModelRateLimited(ModelError):
    """Error: the rate limit of the API key is exceeded. All agents that use this key should wait."""


class ModelOverloaded(ModelError):
    """Error: the API is overloaded. All agents that use this API key should wait before the next call."""


class ModelFailed(ModelError):
    """Error: the API failed temporarily, so that a retry may succeed."""


class ModelUnreachable(ModelError):
    """Error: the API cannot be reached, the connection was dropped, or the reply stream sent no data in time."""

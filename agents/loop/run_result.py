"""Limits and result of one run of the turn loop."""

from decimal import Decimal
from typing import Literal

import attrs

from coterie.agents.errors import BudgetSpent, ModelError
from coterie.agents.loop.model.usage import Usage

EndReason = Literal[
    "completed",
    "max_turns",
    "budget",
    "prompt_too_long",
    "refused",
    "cut_off",
    "cancelled",
    "model_error",
    "blocked",
    "shutdown",
    "hook",
]
"""completed: the model made no more tool calls. budget: a limit of tokens, seconds or dollars was reached. cut_off: a
reply did not fit even in the largest `max_tokens`. blocked: the context is too full for another turn. shutdown: an
authorised agent or the user requested the end. hook: a hook of the user ended the run."""


@attrs.frozen(kw_only=True)
class RunLimits:
    """Limits of one run of an agent; None means no limit. The gateway enforces the limit in dollars."""

    turns: int = 200
    tokens: int | None = None
    """Input and output tokens of all model calls together."""
    seconds: float | None = None

    def without(self, ended: "RunEnded") -> "RunLimits":
        """Return the limits that remain after *ended*; the limit of seconds starts anew."""
        tokens = None if self.tokens is None else max(0, self.tokens - ended.usage.total)
        return attrs.evolve(self, turns=max(0, self.turns - ended.turns), tokens=tokens)


@attrs.frozen(kw_only=True)
class RunEnded:
    """Result of one run of the turn loop."""

    reason: EndReason
    text: str = ""
    """Text of the last reply."""
    turns: int = 0
    tool_calls: int = 0
    """Tool calls that the model made, including denied and failed ones."""
    usage: Usage = attrs.field(factory=Usage)
    cost: Decimal = Decimal(0)
    """Cost of the run in dollars, exact."""
    error: ModelError | BudgetSpent | None = None
    """Error of the API or the gateway that ended the run."""

    def __add__(self, later: "RunEnded") -> "RunEnded":
        """Combine this result with that of a *later* run: reason and text of the later one, usage of both."""
        return attrs.evolve(
            later,
            turns=self.turns + later.turns,
            tool_calls=self.tool_calls + later.tool_calls,
            usage=self.usage + later.usage,
            cost=self.cost + later.cost,
        )

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
"""Reason why a run of the turn loop ended. completed: the model made no more tool calls. budget: a limit of tokens,
seconds or dollars was reached. refused: the model declined. cut_off: a reply did not fit even in the largest
`max_tokens`. blocked: the context is too full for another turn. shutdown: an authorised agent or the user requested the
end. hook: a hook (a command of the user at an event) ended the run."""


@attrs.frozen(kw_only=True)
class RunLimits:
    """Limits of one run of an agent's turn loop; None means no limit. The gateway enforces limits in dollars."""

    turns: int = 200
    tokens: int | None = None
    """Maximum sum of input and output tokens over all model calls of the run."""
    seconds: float | None = None

    def without(self, ended: "RunEnded") -> "RunLimits":
        """Return the limits for a next run after *ended*: fewer turns and tokens, but the full number of seconds."""
        tokens = None if self.tokens is None else max(0, self.tokens - ended.usage.total)
        return attrs.evolve(self, turns=max(0, self.turns - ended.turns), tokens=tokens)


@attrs.frozen(kw_only=True)
class RunEnded:
    """Result of one run of the turn loop."""

    reason: EndReason
    text: str = ""
    """Text of the last reply in the run; empty if the run had no reply."""
    turns: int = 0
    tool_calls: int = 0
    """Tool calls that the model made, including denied and failed ones."""
    usage: Usage = attrs.field(factory=Usage)
    cost: Decimal = Decimal(0)
    """Exact cost of the run's turns in dollars; without calls of helpers, such as session notes."""
    error: ModelError | BudgetSpent | None = None
    """Error of the API or of the budget check that ended the run; None if no error ended it."""

    def __add__(self, later: "RunEnded") -> "RunEnded":
        """Combine two results: reason, text and error of the *later* run, and the sums of the counts and costs."""
        return attrs.evolve(
            later,
            turns=self.turns + later.turns,
            tool_calls=self.tool_calls + later.tool_calls,
            usage=self.usage + later.usage,
            cost=self.cost + later.cost,
        )

"""Limits of a run of the loop, and its result."""

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
"""completed: the model had no more calls to make. budget: a limit of tokens, seconds or dollars is reached. cut_off: a
reply did not fit, even at the largest size. blocked: the context is too full for another turn. shutdown: somebody who
may asked the agent to end. hook: a hook of the user's did."""


@attrs.frozen(kw_only=True)
class RunLimits:
    """What one run of an agent may use; None is no limit. Dollars are watched by the gate."""

    turns: int = 200
    tokens: int | None = None
    """Of all calls together, in and out."""
    seconds: float | None = None

    def without(self, ended: "RunEnded") -> "RunLimits":
        """What is left after *ended*; the seconds count anew."""
        tokens = None if self.tokens is None else max(0, self.tokens - ended.usage.total)
        return attrs.evolve(self, turns=max(0, self.turns - ended.turns), tokens=tokens)


@attrs.frozen(kw_only=True)
class RunEnded:
    """The end of a run of the loop."""

    reason: EndReason
    text: str = ""
    """The text of the last reply."""
    turns: int = 0
    tool_calls: int = 0
    """That the model made, whatever came of them."""
    usage: Usage = attrs.field(factory=Usage)
    cost: Decimal = Decimal(0)
    """Dollars, exact."""
    error: ModelError | BudgetSpent | None = None
    """What the model's service, or the gate, said."""

    def __add__(self, later: "RunEnded") -> "RunEnded":
        """The end of a run that went on after this one: how and with what it ended, and what both have used."""
        return attrs.evolve(
            later,
            turns=self.turns + later.turns,
            tool_calls=self.tool_calls + later.tool_calls,
            usage=self.usage + later.usage,
            cost=self.cost + later.cost,
        )

"""Plan approval: the policy that names the approver, and the decision over a plan."""

from collections.abc import Sequence
from typing import Final, Literal, Protocol

import attrs


@attrs.frozen(kw_only=True)
class PlanDecision:
    """What was decided over a plan."""

    approve: bool
    by: str
    """lead, human or rule; root, if nobody was asked."""
    feedback: str = ""


class PlanApprover(Protocol):
    """Whoever brings a plan before those who decide."""

    async def submit(self, plan: str, files: Sequence[str]) -> PlanDecision:
        """Wait for the judgement, however long that takes. Cancellation withdraws the plan."""
        ...


Approver = Literal["lead", "human", "rule"]
HUMAN: Final = "human"
LEAD: Final = "lead"
RULE: Final = "rule"


@attrs.frozen(kw_only=True)
class PlanPolicy:
    """Who decides over plans. It is no part of a prompt, and the asker cannot change it."""

    by: Approver | None = None
    """None is what the settings say."""
    paths: tuple[str, ...] = ()
    """Of a rule: patterns, as `tests/**`, of the only files that may be changed, by the plan and by what follows."""

    def resolve(self, *, is_lead: bool) -> "PlanPolicy":
        """Who decides over one agent, once it is known which: the lead is nobody's to judge but the human's."""
        by = self.by or "lead"
        return attrs.evolve(self, by="human" if by == "lead" and is_lead else by)

    @property
    def description(self) -> str:
        """Who decides, as the asker is told."""
        if self.by == "rule":
            return f"a rule, by which only {', '.join(self.paths)} may be changed and no command may be run"
        return "the user" if self.by == "human" else "the lead"

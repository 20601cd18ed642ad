"""Plan approval: the policy that names the approver, and the decision over a plan."""

from collections.abc import Sequence
from typing import Final, Literal, Protocol

import attrs

Approver = Literal["lead", "human", "rule"]
HUMAN: Final = "human"
LEAD: Final = "lead"
RULE: Final = "rule"


@attrs.frozen(kw_only=True)
class PlanDecision:
    """Decision over a plan."""

    approve: bool
    by: str
    """Approver: lead, human or rule; root if no approver was asked."""
    feedback: str = ""


class PlanApprover(Protocol):
    """Submits plans for a decision."""

    async def submit(self, plan: str, files: Sequence[str]) -> PlanDecision:
        """Wait for the decision without a timeout. Cancellation withdraws the plan."""


@attrs.frozen(kw_only=True)
class PlanPolicy:
    """Approver of an agent's plan. The policy is not part of any prompt, and the agent cannot change it."""

    by: Approver | None = None
    """Approver; None for the approver in the settings."""
    paths: tuple[str, ...] = ()
    """For a rule: patterns such as `tests/**` of the only files that the plan and the work after it may change."""

    def resolve(self, *, is_lead: bool) -> "PlanPolicy":
        """Return the policy of one agent with the approver set; only the user can approve a plan of the lead."""
        by = self.by or "lead"
        return attrs.evolve(self, by="human" if by == "lead" and is_lead else by)

    @property
    def description(self) -> str:
        """Description of the approver, as the agent gets it."""
        if self.by == "rule":
            return f"a rule, by which only {', '.join(self.paths)} may be changed and no command may be run"
        return "the user" if self.by == "human" else "the lead"

"""Plan approval: the policy that names the approver of an agent's plan, and the decision on a plan."""

from collections.abc import Sequence
from typing import Final, Literal, Protocol

import attrs

Approver = Literal["lead", "human", "rule"]
HUMAN: Final = "human"
LEAD: Final = "lead"
RULE: Final = "rule"


@attrs.frozen(kw_only=True)
class PlanDecision:
    """Decision on a plan that an agent has submitted before its work."""

    approve: bool
    by: str
    """Decider: lead, human, rule; root if it asked no one; the agent itself if withdrawn; empty if approved before."""
    feedback: str = ""


class PlanApprover(Protocol):
    """Service to which an agent submits its plan."""

    async def submit(self, plan: str, files: Sequence[str]) -> PlanDecision:
        """Submit *plan*, which will change *files*; wait for the decision without a timeout. Cancellation withdraws the
        plan.
        """


@attrs.frozen(kw_only=True)
class PlanPolicy:
    """Policy that names the approver of an agent's plan; the agent cannot change the policy."""

    by: Approver | None = None
    """Approver of the plan: the lead, the user or a rule; None for the approver in the settings."""
    paths: tuple[str, ...] = ()
    """For a rule: patterns, such as `tests/**`, of the only files that the plan and the work after it may change."""

    def resolve(self, *, is_lead: bool) -> "PlanPolicy":
        """Return the policy with an approver: by default the lead, or for a plan of the lead, the user."""
        by = self.by or "lead"
        return attrs.evolve(self, by="human" if by == "lead" and is_lead else by)

    @property
    def description(self) -> str:
        """Phrase that names the approver, for the prompt of the agent."""
        if self.by == "rule":
            return f"a rule, by which only {', '.join(self.paths)} may be changed and no command may be run"
        return "the user" if self.by == "human" else "the lead"

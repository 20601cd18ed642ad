"""Who must approve the plan of an agent before it may do more than read."""

from typing import Literal

import attrs

Approver = Literal["lead", "human", "rule"]


@attrs.frozen(kw_only=True)
class PlanPolicy:
    """Who decides over plans. It is no part of a prompt, and the asker cannot change it."""

    by: Approver | None = None
    """None is what the settings say."""
    paths: tuple[str, ...] = ()
    """Of a rule: patterns, as `tests/**`, of the only files that may be changed, by the plan and by what follows."""

    def settled(self, *, is_lead: bool) -> "PlanPolicy":
        """Who decides over one agent, once it is known which: the lead is nobody's to judge but the human's."""
        by = self.by or "lead"
        return attrs.evolve(self, by="human" if by == "lead" and is_lead else by)

    @property
    def words(self) -> str:
        """Who decides, as the asker is told."""
        if self.by == "rule":
            return f"a rule, by which only {', '.join(self.paths)} may be changed and no command may be run"
        return "the user" if self.by == "human" else "the lead"

"""What is said where a plan waits for approval, and where the lead decides over one."""

from coterie.agents.control.word import Word


class SubmitPlan(Word, tag="submit_plan", frozen=True):
    """The agent's plan, for a yes. Answered by `PlanJudged`, however long that takes."""

    call: int
    plan: str
    files: tuple[str, ...] = ()
    """What it would change, relative to where the agent works."""


class WithdrawPlan(Word, tag="withdraw_plan", frozen=True):
    """The agent does not wait for this answer any more."""

    call: int


class PlanJudged(Word, tag="plan_judged", frozen=True):
    """What was decided over a plan."""

    call: int
    approve: bool
    by: str
    """lead, human, or rule."""
    feedback: str = ""


class DecidePlan(Word, tag="decide_plan", frozen=True):
    """An agent decides over the plan of another. Answered by `PlanDecided`."""

    call: int
    id: str
    """Of the approval."""
    approve: bool
    feedback: str = ""
    asker: str | None = None
    """Whose plan it is meant to be; None for whoever's it is."""


class PlanDecided(Word, tag="plan_decided", frozen=True):
    """Whether that counted."""

    call: int
    refusal: str | None = None
    """Why it did not."""

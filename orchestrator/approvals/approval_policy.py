"""Rules for who may decide an approval, and automatic decisions by rule.

AgentError
├── AnswerInvalid      an answer that does not count, and changes nothing
└── ApprovalNotStored  a request that could not be kept, so nobody was asked
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from coterie.agents.permissions.path_pattern import PathPattern
from coterie.agents.permissions.plan_approval import HUMAN, LEAD
from coterie.errors import AgentError
from coterie.orchestrator.approvals.store import Approval
from coterie.session_directory import MAIN


@attrs.frozen(kw_only=True)
class ApprovalDecision:
    """Somebody's answer to an approval."""

    id: str
    approve: bool
    feedback: str = ""
    agent: str | None = None
    """The agent on whose control socket it came; None for the human."""
    requester: str | None = None
    """Whose request it is meant to answer; None for whoever made it."""

    @property
    def by(self) -> str:
        """Who decides, as events and records name it."""
        if self.agent is None:
            return HUMAN
        return LEAD if self.agent == MAIN else self.agent


def rejection_reason(decision: ApprovalDecision, approval: Approval) -> str | None:
    """Why *decision* does not count for *approval*; None if it does. A person stands above the lead."""
    claim = approval.claim
    if decision.requester not in (None, claim.agent):
        return f"{approval.id} was asked for by {claim.agent}, not by {decision.requester}"
    if approval.state != "open":
        return f"{approval.id} is not open any more: {describe_state(approval)}"
    if decision.agent is None:
        return None
    if decision.agent == claim.agent:
        return "nobody approves what they ask for themselves"
    if decision.agent != MAIN:
        return "only the lead or the user decides"
    return None if claim.approver == LEAD else "only the user decides over this one"


def describe_state(approval: Approval) -> str:
    """How it stands, in a few words."""
    if approval.state == "open":
        return f"open, for the {'user' if approval.claim.approver == HUMAN else approval.claim.approver} to decide"
    if approval.state == "withdrawn":
        return f"withdrawn, because {approval.feedback}"
    return f"{approval.state} by the {'user' if approval.by == HUMAN else approval.by}"


@attrs.frozen(kw_only=True)
class RuleDecision:
    """What a rule says of a plan."""

    approve: bool
    feedback: str = ""


def decide_by_rule(paths: Sequence[str], files: Sequence[str], root: Path) -> RuleDecision:
    """Approve a plan whose *files*, relative to *root*, all match one of *paths*; there must be one.

    Links are followed, as they are now. A pattern that is none describes no file.
    """
    allowed = ", ".join(paths) or "nothing"
    try:
        patterns = [PathPattern.parse(path) for path in paths]
    except ValueError as exc:
        return RuleDecision(approve=False, feedback=f"The rule that decides cannot be used: {exc}.")
    if not files:
        return RuleDecision(
            approve=False, feedback=f"Name the files that the plan changes; only {allowed} may be changed."
        )
    outside = [file for file in files if not _is_described(file, patterns, root.resolve())]
    if outside:
        return RuleDecision(approve=False, feedback=f"Only {allowed} may be changed, and not {', '.join(outside)}.")
    return RuleDecision(approve=True)


def _is_described(file: str, patterns: Iterable[PathPattern], root: Path) -> bool:
    try:
        path = (root / file).resolve()
    except (OSError, ValueError, RuntimeError):  # RuntimeError: links that lead round in a circle
        return False
    return any(pattern.covers(path, root) for pattern in patterns)


@attrs.define(eq=False)
class AnswerInvalid(AgentError):
    """Who gave the answer may not, or there is nothing to answer."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.define(eq=False)
class ApprovalNotStored(AgentError):
    """The disk did not take the request."""

    reason: str

    def __str__(self) -> str:
        return self.reason

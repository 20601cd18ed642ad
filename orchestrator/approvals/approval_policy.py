"""Rules for who may decide an approval request, and the automatic decision on a plan by file patterns.

AgentError
├── AnswerInvalid      an answer that was rejected and changed nothing
└── ApprovalNotStored  a request, or the decision of a rule on it, that could not be written to disk
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
    """Answer of the user or an agent to an approval request: approve or reject, with a text for the requester."""

    id: str
    approve: bool
    feedback: str = ""
    agent: str | None = None
    """Agent that decides, identified by its connection; None for the user."""
    requester: str | None = None
    """Agent that must have made the request; None to accept any."""

    @property
    def by(self) -> str:
        """Decider as written in events and records: `human`, `lead`, or the name of another agent."""
        if self.agent is None:
            return HUMAN
        return LEAD if self.agent == MAIN else self.agent


def rejection_reason(decision: ApprovalDecision, approval: Approval) -> str | None:
    """Return the reason why *decision* on *approval* is not allowed; None if it is allowed.

    The user may decide every open approval. The lead may decide only those that are assigned to the lead. No other
    agent may decide.
    """
    claim = approval.claim
    if decision.requester not in (None, claim.agent):
        return f"approval {approval.id} was requested by {claim.agent}, not {decision.requester}; correct the name"
    if approval.state != "open":
        return f"approval {approval.id} is no longer open: {describe_state(approval)}"
    if decision.agent is None:
        return None
    if decision.agent == claim.agent:
        return "an agent cannot decide its own request; wait for the decision"
    if decision.agent != MAIN:
        return "only the lead (first agent) or the user can decide approvals"
    return None if claim.approver == LEAD else f"only the user can decide approval {approval.id}"


def describe_state(approval: Approval) -> str:
    """Return a phrase for the state of *approval*, such as "approved by the user"; for errors and lists."""
    if approval.state == "open":
        return f"open, for the {'user' if approval.claim.approver == HUMAN else approval.claim.approver} to decide"
    if approval.state == "withdrawn":
        return f"withdrawn, because {approval.feedback}"
    return f"{approval.state} by the {'user' if approval.by == HUMAN else approval.by}"


@attrs.frozen(kw_only=True)
class RuleDecision:
    """Automatic decision on an agent's plan by a rule: a list of patterns of the files that it may change."""

    approve: bool
    feedback: str = ""


def decide_by_rule(paths: Sequence[str], files: Sequence[str], root: Path) -> RuleDecision:
    """Approve a plan if it names at least one file, and each of *files* matches one of the patterns *paths*.

    File names are relative to *root*, and symlinks are resolved now. Otherwise, or if a pattern is invalid, reject it.
    """
    allowed = ", ".join(paths) or "nothing"
    try:
        patterns = [PathPattern.parse(path) for path in paths]
    except ValueError as exc:
        return RuleDecision(approve=False, feedback=f"The plan rule has an invalid pattern: {exc}.")
    if not files:
        return RuleDecision(
            approve=False, feedback=f"Name the files that the plan changes; only {allowed} may be changed."
        )
    outside = [file for file in files if not _matches_any(file, patterns, root.resolve())]
    if outside:
        return RuleDecision(approve=False, feedback=f"Only {allowed} may be changed, and not {', '.join(outside)}.")
    return RuleDecision(approve=True)


def _matches_any(file: str, patterns: Iterable[PathPattern], root: Path) -> bool:
    try:
        path = (root / file).resolve()
    except (OSError, ValueError, RuntimeError):  # RuntimeError: a cycle of symlinks
        return False
    return any(pattern.covers(path, root) for pattern in patterns)


@attrs.define(eq=False)
class AnswerInvalid(AgentError):
    """An answer to an approval request is not allowed, the request is unknown or not open, or storing failed."""

    reason: str


@attrs.define(eq=False)
class ApprovalNotStored(AgentError):
    """The approval request, or the decision of a rule on it, could not be written to disk."""

    reason: str

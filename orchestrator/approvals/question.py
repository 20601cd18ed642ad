"""A plan as a question at the terminal, to whoever sits there."""

from coterie.agents.permissions import Question
from coterie.orchestrator.approvals.record import Approval


def question_of(approval: Approval) -> Question:
    """What the user is asked: yes lets the agent begin, and no, with a reason, lets it plan again."""
    claim = approval.claim
    return Question(
        tool="ExitPlanMode",
        subject=claim.plan,
        details={"files": "\n".join(claim.files)} if claim.files else {},
        reason=f"its plan is to be approved before it changes anything ({approval.id})",
        rules=(),
        remedy=f"coterie approvals approve {approval.id}",
        agent=claim.agent,
    )

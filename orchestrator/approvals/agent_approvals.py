"""Approval requests and decisions of one incarnation of an agent."""

from pathlib import Path

import attrs

from coterie.agents.permissions.plan_approval import HUMAN, PlanDecision, PlanPolicy
from coterie.agents.permissions.types import AllowOnce, Answer, DenyCall, Question
from coterie.agents.root_link.approval_messages import DecidePlan, PlanDecided, PromptUser, SubmitPlan
from coterie.orchestrator.approvals.approval_policy import AnswerInvalid, ApprovalDecision, ApprovalNotStored
from coterie.orchestrator.approvals.service import ApprovalService
from coterie.orchestrator.approvals.store import ApprovalSubject

ROOT = "root"
"""Decider of a plan that was refused without asking a person or the lead."""
WITHDRAWN = "the agent no longer waits for an answer"


@attrs.frozen(kw_only=True)
class AgentApprovals:
    """Approval handler of one agent connection; also a `UserPrompter`.

    The connection identifies the agent, so its messages do not name it.
    """

    approvals: ApprovalService
    agent: str
    incarnation: int
    policy: PlanPolicy | None
    """Plan policy of this agent, with the approver resolved; None if it needs no plan approval."""
    directory: Path
    """Working directory of the agent."""

    async def submit(self, message: SubmitPlan) -> PlanDecision:
        """Wait until the plan is decided, without a time limit. Cancellation leaves the request open."""
        if self.policy is None:
            return PlanDecision(approve=False, by=ROOT, feedback="No plan was requested from this agent.")
        try:
            approval = await self.approvals.request(self._plan(self.policy, message), self.directory)
        except ApprovalNotStored as exc:
            return PlanDecision(approve=False, by=ROOT, feedback=f"The plan was not submitted: {exc}.")
        is_approved = approval.state == "approved"
        return PlanDecision(approve=is_approved, by=approval.by, feedback=approval.feedback)

    async def withdraw(self, message: SubmitPlan) -> None:
        """Withdraw the request for that plan, because the agent no longer waits for the decision."""
        if self.policy is not None:
            await self.approvals.withdraw(self._plan(self.policy, message), WITHDRAWN)

    async def decide(self, message: DecidePlan) -> PlanDecided:
        """Record this agent's decision on the plan of another agent; return a refusal if it may not decide."""
        decision = ApprovalDecision(
            id=message.id, approve=message.approve, feedback=message.feedback, agent=self.agent, requester=message.asker
        )
        try:
            await self.approvals.decide(decision)
        except AnswerInvalid as exc:
            return PlanDecided(refusal=exc.reason)
        return PlanDecided()

    async def ask(self, question: Question) -> Answer:
        """Implement `UserPrompter.ask` by an approval that the user answers from a shell, at any time.

        Cancellation leaves the approval open.
        """
        try:
            approval = await self.approvals.request(self._permission(question), self.directory)
        except ApprovalNotStored as exc:
            return DenyCall(f"The user was not asked: {exc}.")
        return AllowOnce() if approval.state == "approved" else DenyCall(approval.feedback)

    async def withdraw_prompt(self, question: Question) -> None:
        """Withdraw the approval for *question*, because the agent no longer waits. No-op if there is none."""
        await self.approvals.withdraw(self._permission(question), WITHDRAWN)

    def _plan(self, policy: PlanPolicy, message: SubmitPlan) -> ApprovalSubject:
        assert policy.by is not None, "the supervisor has resolved the policy"
        return ApprovalSubject(
            what="plan",
            agent=self.agent,
            incarnation=self.incarnation,
            approver=policy.by,
            paths=policy.paths,
            plan=message.plan,
            files=message.files,
        )

    def _permission(self, question: Question) -> ApprovalSubject:
        return ApprovalSubject(
            what="permission",
            agent=self.agent,
            incarnation=self.incarnation,
            approver=HUMAN,
            question=PromptUser.of(question),
        )

"""Handler, in the root (supervisor), of plans, plan decisions and permission prompts from one start of an agent."""

from pathlib import Path

import attrs

from coterie.agents.permissions.plan_approval import HUMAN, PlanDecision, PlanPolicy
from coterie.agents.permissions.types import AllowOnce, Answer, DenyCall, Question
from coterie.agents.root_link.approval_messages import DecidePlan, PlanDecided, PromptUser, SubmitPlan
from coterie.orchestrator.approvals.approval_policy import AnswerInvalid, ApprovalDecision, ApprovalNotStored
from coterie.orchestrator.approvals.service import ApprovalService
from coterie.orchestrator.approvals.store import ApprovalSubject

ROOT = "root"
"""Value of `PlanDecision.by` if the root (supervisor process) itself refuses a plan, such as after a failed write."""
WITHDRAWN = "the agent no longer waits for an answer"


@attrs.frozen(kw_only=True)
class AgentApprovals:
    """Handler of the plans, plan decisions and permission prompts from one start of an agent to the root (supervisor).

    Implements `UserPrompter`. The connection identifies the agent, so the messages contain no agent name.
    """

    approvals: ApprovalService
    agent: str
    incarnation: int
    policy: PlanPolicy | None
    """Plan policy of this agent, with an approver in `by`; None if the agent needs no plan approval."""
    directory: Path
    """Working directory of the agent."""

    async def submit(self, message: SubmitPlan) -> PlanDecision:
        """Request approval of the plan in *message*; wait for the decision. Cancellation leaves the request open."""
        if self.policy is None:
            return PlanDecision(approve=False, by=ROOT, feedback="No plan was requested from this agent.")
        try:
            approval = await self.approvals.request(self._plan(self.policy, message), self.directory)
        except ApprovalNotStored as exc:
            return PlanDecision(approve=False, by=ROOT, feedback=f"The plan was not submitted: {exc}.")
        is_approved = approval.state == "approved"
        return PlanDecision(approve=is_approved, by=approval.by, feedback=approval.feedback)

    async def withdraw(self, message: SubmitPlan) -> None:
        """Withdraw the approval request for the plan in *message*, because the agent no longer waits."""
        if self.policy is not None:
            await self.approvals.withdraw(self._plan(self.policy, message), WITHDRAWN)

    async def decide(self, message: DecidePlan) -> PlanDecided:
        """Store this agent's decision on another agent's plan. The result holds the refusal if this is not allowed."""
        decision = ApprovalDecision(
            id=message.id, approve=message.approve, feedback=message.feedback, agent=self.agent, requester=message.asker
        )
        try:
            await self.approvals.decide(decision)
        except AnswerInvalid as exc:
            return PlanDecided(refusal=exc.reason)
        return PlanDecided()

    async def ask(self, question: Question) -> Answer:
        """Store *question* (a permission prompt) as an approval request, and wait, maybe for days, for the user.

        Cancellation leaves the request open.
        """
        try:
            approval = await self.approvals.request(self._permission(question), self.directory)
        except ApprovalNotStored as exc:
            return DenyCall(f"The user was not asked: {exc}.")
        return AllowOnce() if approval.state == "approved" else DenyCall(approval.feedback)

    async def withdraw_prompt(self, question: Question) -> None:
        """Withdraw the approval request for *question*, because the agent no longer waits. No-op if there is none."""
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

"""Approvals as one incarnation of an agent uses them: its requests and its decisions."""

from pathlib import Path

import attrs

from coterie.agents.permissions.plan_approval import HUMAN, PlanDecision, PlanPolicy
from coterie.agents.permissions.types import AllowOnce, Answer, DenyCall, Question
from coterie.agents.root_link.approval_messages import DecidePlan, PlanDecided, PromptUser, SubmitPlan
from coterie.orchestrator.approvals.approval_policy import AnswerInvalid, ApprovalDecision, ApprovalNotStored
from coterie.orchestrator.approvals.service import ApprovalService
from coterie.orchestrator.approvals.store import ApprovalSubject

ROOT = "root"
"""Who says no where nobody was asked."""
WITHDRAWN = "the agent does not wait for it any more"


@attrs.frozen(kw_only=True)
class AgentApprovals:
    """Who asks is known by the socket, so it is said here and in no word. It is a `UserPrompter`, too."""

    approvals: ApprovalService
    agent: str
    incarnation: int
    policy: PlanPolicy | None
    """Settled for this agent."""
    directory: Path
    """Where the agent works."""

    async def submit(self, word: SubmitPlan) -> PlanDecision:
        """What is decided over a plan, however long that takes. Cancelled, the request stays open."""
        if self.policy is None:
            return PlanDecision(approve=False, by=ROOT, feedback="No plan was asked for.")
        try:
            approval = await self.approvals.request(self._plan(self.policy, word), self.directory)
        except ApprovalNotStored as exc:
            return PlanDecision(approve=False, by=ROOT, feedback=f"Nobody was asked: {exc}.")
        is_approved = approval.state == "approved"
        return PlanDecision(approve=is_approved, by=approval.by, feedback=approval.feedback)

    async def withdraw(self, word: SubmitPlan) -> None:
        """The agent does not wait for that judgement any more."""
        if self.policy is not None:
            await self.approvals.withdraw(self._plan(self.policy, word), WITHDRAWN)

    async def decide(self, word: DecidePlan) -> PlanDecided:
        """Let the agent decide over the plan of another, if it may."""
        decision = ApprovalDecision(
            id=word.id, approve=word.approve, feedback=word.feedback, agent=self.agent, requester=word.asker
        )
        try:
            await self.approvals.decide(decision)
        except AnswerInvalid as exc:
            return PlanDecided(refusal=exc.reason)
        return PlanDecided()

    async def ask(self, question: Question) -> Answer:
        """As `UserPrompter.ask`: the user answers from a shell, at any time. Cancelled, the question stays open."""
        try:
            approval = await self.approvals.request(self._permission(question), self.directory)
        except ApprovalNotStored as exc:
            return DenyCall(f"Nobody was asked: {exc}.")
        return AllowOnce() if approval.state == "approved" else DenyCall(approval.feedback)

    async def withdraw_prompt(self, question: Question) -> None:
        """The agent does not wait for that permission any more; nothing happens if it was not asked for here."""
        await self.approvals.withdraw(self._permission(question), WITHDRAWN)

    def _plan(self, policy: PlanPolicy, word: SubmitPlan) -> ApprovalSubject:
        assert policy.by is not None, "it is settled"
        return ApprovalSubject(
            what="plan",
            agent=self.agent,
            incarnation=self.incarnation,
            approver=policy.by,
            paths=policy.paths,
            plan=word.plan,
            files=word.files,
        )

    def _permission(self, question: Question) -> ApprovalSubject:
        asked = PromptUser.of(question)
        return ApprovalSubject(
            what="permission", agent=self.agent, incarnation=self.incarnation, approver=HUMAN, question=asked
        )

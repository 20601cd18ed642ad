"""The approvals as one start of one agent has them: what it asks for, and what it decides."""

from pathlib import Path

import attrs

from coterie.agents.approvals.policy import PlanPolicy
from coterie.agents.control.approval_words import DecidePlan, PlanDecided, PlanJudged, SubmitPlan
from coterie.agents.control.asking_words import Ask
from coterie.agents.permissions import Answer, Once, Question, Refusal
from coterie.orchestrator.approvals.approvals import Approvals
from coterie.orchestrator.approvals.errors import AnswerInvalid, NotAsked
from coterie.orchestrator.approvals.judging import HUMAN, Decision
from coterie.orchestrator.approvals.record import Claim

ROOT = "root"
"""Who says no where nobody was asked."""
TAKEN_BACK = "the agent does not wait for it any more"


@attrs.frozen(kw_only=True)
class AgentApprovals:
    """Who asks is known by the socket, so it is said here and in no word. It is an `Asker`, too."""

    approvals: Approvals
    agent: str
    incarnation: int
    policy: PlanPolicy | None
    """Settled for this agent."""
    directory: Path
    """Where the agent works."""

    async def submit(self, word: SubmitPlan) -> PlanJudged:
        """What is decided over a plan, however long that takes. Cancelled, the request stays open."""
        if self.policy is None:
            return PlanJudged(call=word.call, approve=False, by=ROOT, feedback="No plan was asked for.")
        try:
            approval = await self.approvals.judged(self._plan(self.policy, word), self.directory)
        except NotAsked as exc:
            return PlanJudged(call=word.call, approve=False, by=ROOT, feedback=f"Nobody was asked: {exc}.")
        is_approved = approval.state == "approved"
        return PlanJudged(call=word.call, approve=is_approved, by=approval.by, feedback=approval.feedback)

    async def withdraw(self, word: SubmitPlan) -> None:
        """The agent does not wait for that judgement any more."""
        if self.policy is not None:
            await self.approvals.withdraw(self._plan(self.policy, word), TAKEN_BACK)

    async def decide(self, word: DecidePlan) -> PlanDecided:
        """Let the agent decide over the plan of another, if it may."""
        decision = Decision(
            id=word.id, approve=word.approve, feedback=word.feedback, agent=self.agent, asker=word.asker
        )
        try:
            await self.approvals.decide(decision)
        except AnswerInvalid as exc:
            return PlanDecided(call=word.call, refusal=exc.reason)
        return PlanDecided(call=word.call)

    async def ask(self, question: Question) -> Answer:
        """As `Asker.ask`: the user answers from a shell, today or tomorrow. Cancelled, the question stays open."""
        try:
            approval = await self.approvals.judged(self._permission(question), self.directory)
        except NotAsked as exc:
            return Refusal(f"Nobody was asked: {exc}.")
        return Once() if approval.state == "approved" else Refusal(approval.feedback)

    async def take_back(self, question: Question) -> None:
        """The agent does not wait for that permission any more; nothing happens if it was not asked for here."""
        await self.approvals.withdraw(self._permission(question), TAKEN_BACK)

    def _plan(self, policy: PlanPolicy, word: SubmitPlan) -> Claim:
        assert policy.by is not None, "it is settled"
        return Claim(
            what="plan",
            agent=self.agent,
            incarnation=self.incarnation,
            approver=policy.by,
            paths=policy.paths,
            plan=word.plan,
            files=word.files,
        )

    def _permission(self, question: Question) -> Claim:
        asked = Ask.of(0, question)
        return Claim(what="permission", agent=self.agent, incarnation=self.incarnation, approver=HUMAN, question=asked)

"""Approval requests and decisions of one agent."""

import attrs
import pytest
import trio

from coterie.agents.permissions.plan_approval import PlanDecision, PlanPolicy
from coterie.agents.permissions.types import AllowOnce, Answer, DenyCall, Question
from coterie.agents.root_link.approval_messages import SubmitPlan
from coterie.files import file_faults
from coterie.orchestrator.approvals.agent_approvals import AgentApprovals
from coterie.orchestrator.approvals.approval_policy import ApprovalDecision
from coterie.session_directory import SessionDirectory
from tests.orchestrator.approvals.approval_harness import ApprovalHarness, open_approval_harness, settle
from tests.seeded_faults import SeededFaults

SUBMIT = SubmitPlan(plan="1. Look.", files=("a.txt",))
QUESTION = Question(tool="Bash", subject="make", reason="no rule", rules=(), remedy="a rule", agent="builder")


def of(
    bench: ApprovalHarness, agent: str = "builder", policy: PlanPolicy | None = None, incarnation: int = 1
) -> AgentApprovals:
    return AgentApprovals(
        approvals=bench.approvals,
        agent=agent,
        incarnation=incarnation,
        policy=policy,
        directory=bench.session.project,
    )


BY_LEAD = PlanPolicy(by="lead")


async def test_unrequested_plan_is_rejected_without_asking(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench:
        judged = await of(bench).submit(SUBMIT)
        assert judged == PlanDecision(approve=False, by="root", feedback="No plan was requested from this agent.")
        await of(bench).withdraw(SUBMIT)
        assert bench.events == []


async def test_unstorable_request_is_denied(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench:
        with file_faults(SeededFaults(seed=1, full=1.0)):
            judged = await of(bench, policy=BY_LEAD).submit(SUBMIT)
            answer = await of(bench).ask(QUESTION)
        assert (judged.approve, judged.by) == (False, "root")
        assert judged.feedback.startswith("The plan was not submitted: the request could not be stored: ")
        assert isinstance(answer, DenyCall)


@pytest.mark.parametrize(
    ("decision", "answer"),
    [
        (ApprovalDecision(id="permission-1", approve=True), AllowOnce()),
        (ApprovalDecision(id="permission-1", approve=False, feedback="Not on Fridays."), DenyCall("Not on Fridays.")),
    ],
)
async def test_permission_prompt_becomes_an_approval(
    session: SessionDirectory, decision: ApprovalDecision, answer: Answer
) -> None:
    answers: list[Answer] = []
    async with open_approval_harness(session) as bench, trio.open_nursery() as nursery:

        async def ask() -> None:
            answers.append(await of(bench).ask(QUESTION))

        nursery.start_soon(ask)
        await settle()
        kept = bench.kept("permission-1")
        assert (kept.claim.agent, kept.claim.approver, kept.subject) == ("builder", "human", "Bash make")
        await bench.approvals.decide(decision)
    assert answers == [answer]


async def test_cancelled_permission_prompt_is_withdrawn(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(of(bench).ask, QUESTION)
            await settle()
            nursery.cancel_scope.cancel()
        await of(bench).withdraw_prompt(attrs.evolve(QUESTION, subject="make test"))
        assert bench.kept("permission-1").state == "open"
        await of(bench).withdraw_prompt(QUESTION)
        assert bench.kept("permission-1").state == "withdrawn"


def test_plan_policy_is_resolved_for_each_agent() -> None:
    assert PlanPolicy().resolve(is_lead=False).by == "lead"
    assert PlanPolicy(by="lead").resolve(is_lead=True).by == "human"
    assert PlanPolicy(by="human").resolve(is_lead=False).by == "human"
    rule = PlanPolicy(by="rule", paths=("tests/**",))
    assert rule.resolve(is_lead=True) == rule
    assert "only tests/** may be changed and no command" in rule.description

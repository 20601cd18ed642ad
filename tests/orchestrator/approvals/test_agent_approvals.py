"""Approval requests and decisions of one agent, also over the control sockets of a lead and an agent."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import attrs
import pytest
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.permissions.plan_approval import PlanDecision, PlanPolicy
from coterie.agents.permissions.types import AllowOnce, Answer, DenyCall, Question
from coterie.agents.root_link.approval_messages import SubmitPlan
from coterie.agents.tools.team.send_message import SendMessage
from coterie.agents.tools.tool import ToolResult, Workspace, call_tool
from coterie.clock import Clock
from coterie.files import file_faults
from coterie.mailbox.envelope import Sender, SenderKind
from coterie.orchestrator.approvals.agent_approvals import AgentApprovals
from coterie.orchestrator.approvals.approval_policy import ApprovalDecision
from coterie.orchestrator.gateway.admission import ModelGateway
from coterie.session_directory import MAIN, SessionDirectory
from tests.orchestrator.approvals.approval_harness import ApprovalHarness, open_approval_harness, settle
from tests.orchestrator.supervisor.process_samples import ConnectedAgent, open_connected_agent
from tests.seeded_faults import SeededFaults

BY_LEAD = PlanPolicy(by="lead")
SUBMIT = SubmitPlan(plan="1. Look.", files=("a.txt",))
QUESTION = Question(tool="Bash", subject="make", reason="no rule", rules=(), remedy="a rule", agent="builder")


def of(bench: ApprovalHarness, agent: str = "builder", policy: PlanPolicy | None = None) -> AgentApprovals:
    return AgentApprovals(
        approvals=bench.approvals, agent=agent, incarnation=1, policy=policy, directory=bench.session.project
    )


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
        assert judged.feedback.startswith("The plan was not submitted: the approval request could not be stored: ")
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


def open_agent(
    bench: ApprovalHarness, name: str, policy: PlanPolicy | None = None
) -> AbstractAsyncContextManager[ConnectedAgent]:
    return open_connected_agent(ModelGateway(Clock()), name, approvals=of(bench, name, policy))


async def answer(bench: ApprovalHarness, agent: ConnectedAgent, name: str, kind: SenderKind) -> ToolResult:
    """Let the model of *name* approve the plan of the builder, as its prompt says."""
    router = bench.office.router()
    router.authority = agent.station.services
    sender = Sender(name=name, incarnation=1, session=bench.session.id, kind=kind)
    message = {"type": "plan_approval_response", "request_id": "plan-1", "approve": True, "feedback": "Go."}
    tool = SendMessage(router=router, sender=sender)
    place = Workspace(root=bench.session.project, scratch=bench.session.project)
    return await call_tool({tool.name: tool}, tool.name, {"to": "builder", "message": message}, place)


async def test_only_the_decision_of_the_lead_reaches_the_agent(session: SessionDirectory) -> None:
    decisions: list[PlanDecision] = []
    async with open_approval_harness(session) as bench:
        await bench.office.roster.join("builder")
        async with (
            open_agent(bench, MAIN) as lead,
            open_agent(bench, "builder", BY_LEAD) as builder,
            open_agent(bench, "spy") as spy,
            trio.open_nursery() as nursery,
        ):

            async def submit() -> None:
                decisions.append(await builder.station.services.submit("1. Look.", ()))

            nursery.start_soon(submit)
            await until(lambda: "plan-1" in bench.approvals._entries)  # noqa: SLF001 - nobody is told before
            await settle()
            # An agent that calls itself the lead still uses its own connection.
            refused = await answer(bench, spy, MAIN, "lead")
            assert refused.text.endswith("only the lead (first agent) or the user can decide approvals")
            own = await answer(bench, builder, "builder", "peer")
            assert "an agent cannot decide its own request" in own.text
            assert decisions == []
            counted = await answer(bench, lead, MAIN, "lead")
            assert counted.text == "Accepted, and builder is notified"
            await until(lambda: bool(decisions))
        assert decisions == [PlanDecision(approve=True, by="lead", feedback="Go.")]
        assert bench.office.files.backlog("builder").messages == 0
        assert [by for by, _ in bench.refusals] == ["spy", "builder"]


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - what is waited for is told to nobody
        await trio.sleep(0.001)


async def test_interrupted_turn_withdraws_its_plan_but_a_killed_agent_leaves_it_open(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench:
        with pytest.RaisesGroup(ControlLost):
            async with open_agent(bench, "builder", BY_LEAD) as builder:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(builder.station.services.submit, "1. Look.", ())
                    await until(lambda: "plan-1" in bench.approvals._entries)  # noqa: SLF001 - as above
                    nursery.cancel_scope.cancel()
                await until(lambda: bench.kept("plan-1").state == "withdrawn")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(builder.station.services.submit, "1. Look.", ())
                    await until(lambda: "plan-2" in bench.approvals._entries)  # noqa: SLF001 - as above
                    builder.cut()
        await settle()
        assert bench.kept("plan-2").state == "open"

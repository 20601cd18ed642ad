"""A plan and the answer to it on their real ways: a tool, two agents' control sockets, and the root between them."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from coterie.agents.approvals.planning import Planning
from coterie.agents.approvals.policy import PlanPolicy
from coterie.agents.control.approval_words import SubmitPlan
from coterie.agents.control.line import open_line
from coterie.agents.control.station import Station, open_station
from coterie.agents.control.words import agent_words
from coterie.agents.permissions import Authority, Permissions
from coterie.agents.tools.exit_plan_mode import ExitPlanMode
from coterie.agents.tools.send_message import SendMessage
from coterie.agents.tools.tool import ToolResult, Workspace, call_tool
from coterie.clock import Clock
from coterie.mailbox.envelope import Sender, SenderKind
from coterie.orchestrator.approvals.of_agent import AgentApprovals
from coterie.orchestrator.gate import Limits, SessionGate
from coterie.orchestrator.session import MAIN, Session
from coterie.orchestrator.tree.desk import Desk
from tests.orchestrator.approvals.benches import Bench, open_bench, settle
from tests.orchestrator.tree.test_control import Nobody

BY_LEAD = PlanPolicy(by="lead")


@asynccontextmanager
async def open_agent(bench: Bench, name: str, policy: PlanPolicy | None = None) -> AsyncIterator[Station]:
    """What the process of *name* has of the root."""
    near, far = (trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in socket.socketpair())
    mine = AgentApprovals(
        approvals=bench.approvals, agent=name, incarnation=1, policy=policy, directory=bench.session.project
    )

    async def serve() -> None:
        async with SessionGate(Clock(), Limits()).open_asker(name) as asker, open_line(near, agent_words) as line:
            await Desk(asker, lambda _: None, Nobody(), None, name, mine).run(line)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with open_station(far) as station:
            yield station


def place(bench: Bench) -> Workspace:
    return Workspace(root=bench.session.project, scratch=bench.session.project)


async def answer(bench: Bench, station: Station, name: str, kind: SenderKind, **said: Any) -> ToolResult:
    """Let the model of *name* answer a plan of the builder, as its prompt says."""
    router = bench.office.router()
    router.authority = station.authority
    sender = Sender(name=name, incarnation=1, session=bench.session.id, kind=kind)
    message = {"type": "plan_approval_response", "request_id": "plan-1", "approve": True} | said
    tool = SendMessage(router=router, sender=sender)
    return await call_tool({tool.name: tool}, tool.name, {"to": "builder", "message": message}, place(bench))


async def test_only_the_leads_answer_reaches_the_builder_and_no_mailbox_carries_it(session: Session) -> None:
    results: list[str] = []
    async with open_bench(session) as bench:
        await bench.office.roster.join("builder")
        async with (
            open_agent(bench, MAIN) as lead,
            open_agent(bench, "builder", BY_LEAD) as builder,
            open_agent(bench, "spy") as spy,
            trio.open_nursery() as nursery,
        ):
            did: list[str] = []
            authority = Authority(Permissions(mode="bypassPermissions"))
            planning = Planning(
                policy=BY_LEAD,
                is_approved=False,
                authority=authority,
                judge=builder.approver,
                tell=lambda activity, _what: did.append(activity),
            )
            tool = ExitPlanMode(planning)

            async def submit() -> None:
                called = await call_tool({tool.name: tool}, tool.name, {"plan": "1. Look."}, place(bench))
                results.append(called.text)

            nursery.start_soon(submit)
            await until(lambda: "plan-1" in bench.approvals._entries)  # noqa: SLF001 - nobody is told before
            await settle()
            refused = await answer(bench, spy, "spy", "peer")
            assert refused.text.endswith("only the lead or the user decides")
            # One that says it is the lead is still on its own line.
            assert (await answer(bench, spy, MAIN, "lead")).text.endswith("only the lead or the user decides")
            own = await answer(bench, builder, "builder", "peer")
            assert own.text.endswith("nobody approves what they ask for themselves")
            unnamed = await answer(bench, lead, MAIN, "lead", request_id=None)
            assert unnamed.text.endswith("it must name the request that it answers")
            garbled = await answer(bench, lead, MAIN, "lead", aprove=True)
            assert "its body is not what this kind says" in garbled.text
            assert (results, authority.permissions.mode, did) == ([], "plan", ["plan_pending"])

            counted = await answer(bench, lead, MAIN, "lead", feedback="Go.")
            assert counted.text == "It counts, and builder is told"
            await until(lambda: bool(results))
            again = await answer(bench, lead, MAIN, "lead", approve=False)
            assert again.text.endswith("plan-1 is not open any more: approved by the lead")
        assert results == ["Your plan is approved: begin.\nThe lead says: Go."]
        assert (authority.permissions.mode, did) == ("bypassPermissions", ["plan_pending", "running"])
        assert bench.office.files.backlog("builder").messages == 0
        assert [by for by, _ in bench.refusals] == ["spy", "spy", "builder", "lead"]


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - what is waited for is told to nobody
        await trio.sleep(0.001)


async def test_a_builder_whose_turn_is_interrupted_withdraws_its_plan(session: Session) -> None:
    async with open_bench(session) as bench, open_agent(bench, "builder", BY_LEAD) as builder:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(builder.approver.submit, "1. Look.", ())
            await until(lambda: "plan-1" in bench.approvals._entries)  # noqa: SLF001 - as above
            nursery.cancel_scope.cancel()
        await until(lambda: bench.kept("plan-1").state == "withdrawn")


async def test_a_builder_that_dies_leaves_its_plan_open(session: Session) -> None:
    async with open_bench(session) as bench:
        async with open_agent(bench, "builder", BY_LEAD) as builder, trio.open_nursery() as nursery:
            builder.say(SubmitPlan(call=0, plan="1. Look."))
            await until(lambda: "plan-1" in bench.approvals._entries)  # noqa: SLF001 - as above
            nursery.cancel_scope.cancel()
        await settle()
        assert bench.kept("plan-1").state == "open"

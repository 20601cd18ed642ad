"""An agent's gate in another process is the session's gate: over a real socket, with the real gate at its end."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal

import attrs
import pytest
import trio

from coterie.agents.errors import BudgetSpent, ControlLost
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.usage import Usage
from coterie.agents.root_link.channel import open_channel
from coterie.agents.root_link.job_messages import AGENT_GONE, CompactionDone, CompactJob, NotCompacted
from coterie.agents.root_link.messages import ActivityChanged, AgentMessage, agent_decoder
from coterie.agents.root_link.root_connection import AgentHandlers, RootConnection, open_root_connection
from coterie.agents.root_link.spawn_request import Spawned, SpawnRefused, SpawnRequest
from coterie.clock import Clock
from coterie.mailbox.envelope import Envelope, MessageId, Recipient, Sender
from coterie.mailbox.errors import NotAllowed
from coterie.orchestrator.gateway.admission import ModelGateway
from coterie.orchestrator.gateway.budgets import BudgetLimits
from coterie.orchestrator.supervisor.agent_connection import AgentConnection

MODEL = known_models().get("sonnet")
INTENT = CallIntent(agent="ann", purpose="turn", model=MODEL, prompt_tokens=900, max_tokens=1_000, prefix=b"\0\xff")
USED = Usage(input=12, read=600, write_5m=300, output=40)


class NoSpawner:
    """Starts no agents."""

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """As `Spawner.spawn`, for one name only."""
        await trio.lowlevel.checkpoint()
        if request.name is None:
            raise SpawnRefused("No agent was started: there is no room.")
        return Spawned(name=request.name, incarnation=2, report=MessageId("r"))

    async def stop(self, name: str) -> None:
        """As `Spawner.stop`."""
        raise SpawnRefused(f"There is no {name} that could be stopped.")

    async def request_shutdown(self, request: Envelope) -> None:
        """As `Spawner.request_shutdown`, for one name only."""
        if request.recipient.name != "boss":
            raise SpawnRefused(f"There is no {request.recipient.name} that could end.")

    async def wait_until_idle(self) -> None:
        """As `Spawner.wait_until_idle`."""


@attrs.define(eq=False)
class RootWithAgent:
    """A root with one agent."""

    gate: ModelGateway
    station: RootConnection
    desk: AgentConnection
    on_reply: list[AgentMessage]
    delivered: list[Envelope]
    _agent_end: socket.socket

    def cut(self) -> None:
        """End the connection as the agent's death would."""
        self._agent_end.shutdown(socket.SHUT_RDWR)

    async def settled(self) -> None:
        """Wait until both ends have heard everything."""
        await trio.testing.wait_all_tasks_blocked(0.01)


@asynccontextmanager
async def open_root_with_agent(limits: BudgetLimits | None = None) -> AsyncIterator[RootWithAgent]:
    near, far = socket.socketpair()
    heard: list[AgentMessage] = []
    delivered: list[Envelope] = []
    gate = ModelGateway(Clock(), limits or BudgetLimits())

    async def take(envelope: Envelope) -> None:
        await trio.lowlevel.checkpoint()
        delivered.append(envelope)

    async def serve(task_status: trio.TaskStatus[AgentConnection] = trio.TASK_STATUS_IGNORED) -> None:
        async with gate.open_client("ann") as asker:
            desk = AgentConnection(asker, heard.append, NoSpawner())
            task_status.started(desk)
            async with open_channel(trio.SocketStream(trio.socket.from_stdlib_socket(near)), agent_decoder) as line:
                await desk.run(line)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            desk = await nursery.start(serve)
            async with open_root_connection(trio.SocketStream(trio.socket.from_stdlib_socket(far))) as station:
                with station.delivering_to(take):
                    yield RootWithAgent(gate, station, desk, heard, delivered, far)


async def test_a_call_is_admitted_and_booked_with_what_it_used() -> None:
    async with open_root_with_agent() as office:
        async with office.station.gate.admit(INTENT) as permit:
            assert office.gate.stats().session.reserved.dollars == INTENT.reserve
            permit.begin()
            permit.settle(USED)
        await office.settled()
        session = office.gate.stats().session
        assert (session.spent.dollars, session.reserved.dollars) == (MODEL.cost(USED), Decimal(0))
        assert session.estimated.dollars == 0


async def test_a_refusal_is_the_same_error_as_from_a_gate_nearby() -> None:
    async with open_root_with_agent(BudgetLimits(dollars=Decimal("0.0001"))) as office:
        async with office.gate.open_client("bob") as near:
            with pytest.raises(BudgetSpent) as here:
                async with near.admit(INTENT):
                    pass
        with pytest.raises(BudgetSpent) as there:
            async with office.station.gate.admit(INTENT):
                pass
        assert attrs.asdict(there.value) == attrs.asdict(here.value)


async def test_a_question_that_is_taken_back_holds_nothing() -> None:
    async with open_root_with_agent() as office:
        office.station.gate.cool_down(3600)
        with trio.move_on_after(0.05) as scope:
            async with office.station.gate.admit(INTENT):
                pass
        assert scope.cancelled_caught
        await office.settled()
        standing = office.gate.stats()
        assert (standing.waiting, standing.running_calls, standing.session.reserved.dollars) == (0, 0, Decimal(0))
        assert standing.cool_down > 3000


async def test_unbilled_call_costs_nothing_and_an_interrupted_call_its_maximum() -> None:
    async with open_root_with_agent() as office:
        async with office.station.gate.admit(INTENT) as permit:
            permit.void()
        await office.settled()
        assert office.gate.stats().session.spent.dollars == 0
        async with office.station.gate.admit(INTENT) as permit:
            permit.settle(USED, is_whole=False)
        await office.settled()
        most = MODEL.cost(attrs.evolve(USED, output=INTENT.max_tokens))
        assert office.gate.stats().session.estimated.dollars == most


async def test_agent_killed_during_a_call_frees_its_slot_and_costs_the_maximum() -> None:
    gate: ModelGateway | None = None
    with pytest.RaisesGroup(ControlLost):
        async with open_root_with_agent() as office:
            gate = office.gate
            async with office.station.gate.admit(INTENT) as permit:
                permit.begin()
                await office.settled()
                office.cut()
                await trio.sleep_forever()
    assert gate is not None
    standing = gate.stats()
    assert (standing.running_calls, standing.session.reserved.dollars) == (0, Decimal(0))
    assert standing.session.estimated.dollars == INTENT.reserve


async def test_a_permit_given_when_the_request_was_cancelled_is_released() -> None:
    async with open_root_with_agent() as office:
        with trio.CancelScope() as scope:
            scope.cancel()
            async with office.station.gate.admit(INTENT):
                pass
        await office.settled()
        standing = office.gate.stats()
        assert (standing.waiting, standing.running_calls, standing.session.reserved.dollars) == (0, 0, Decimal(0))


async def test_a_plan_ends_the_connection_where_there_are_no_approvals() -> None:
    with pytest.RaisesGroup(ControlLost, flatten_subgroups=True):
        async with open_root_with_agent() as office:
            await office.station.approver.submit("1. Look.", ())


async def test_a_compaction_of_an_agent_that_dies_is_not_done() -> None:
    answers: list[object] = []

    async def ask(office: RootWithAgent) -> None:
        answers.append(await office.desk.compact(None))

    async with trio.open_nursery() as nursery:
        with pytest.RaisesGroup(ControlLost, flatten_subgroups=True):
            async with open_root_with_agent() as office:
                await ask(office)
                with office.station.handling(AgentHandlers(compact=_never)):
                    nursery.start_soon(ask, office)
                    await office.settled()
                    office.cut()
                    await trio.sleep_forever()
    assert answers == [NotCompacted(reason="it has not started yet"), NotCompacted(reason=AGENT_GONE)]
    with pytest.raises(ControlLost):
        await office.desk.compact(None)


async def test_handlers_of_an_agent_hold_within_their_block() -> None:
    async def compact(_job: CompactJob) -> CompactionDone | NotCompacted:
        await trio.lowlevel.checkpoint()
        return NotCompacted(reason="handled")

    async with open_root_with_agent() as office:
        answers = [await office.desk.compact(None)]
        with office.station.handling(AgentHandlers(compact=compact)):
            answers.append(await office.desk.compact(None))
        answers.append(await office.desk.compact(None))
    assert answers == [NotCompacted(reason=reason) for reason in ("it has not started yet", "handled", AGENT_GONE)]


async def _never(_job: CompactJob) -> CompactionDone | NotCompacted:
    await trio.sleep_forever()
    raise AssertionError


async def test_an_agent_whose_root_has_gone_is_stopped() -> None:
    near, far = socket.socketpair()

    async def work() -> None:
        async with open_root_connection(trio.SocketStream(trio.socket.from_stdlib_socket(far))):
            near.close()
            await trio.sleep_forever()

    with trio.fail_after(10), pytest.raises(ControlLost, match="the root has gone"):
        await work()


async def test_what_the_root_hands_over_arrives_and_what_the_agent_does_is_heard() -> None:
    sender = Sender(name="root", incarnation=1, session="s", kind="system")
    request = Envelope(
        sender=sender, recipient=Recipient(name="ann", incarnation=1), sequence=1, body="{}", created=1.0
    )
    async with open_root_with_agent() as office:
        office.desk.deliver(request)
        office.station.report_activity("waiting", "a child")
        await office.settled()
        assert office.delivered == [request]
        assert office.on_reply == [ActivityChanged(activity="waiting", what="a child")]


async def test_a_request_to_end_is_handed_on_by_the_root_or_refused_with_its_reason() -> None:
    def request(name: str) -> Envelope:
        sender = Sender(name="ann", incarnation=1, session="s", kind="lead")
        recipient = Recipient(name=name, incarnation=1)
        return Envelope(sender=sender, recipient=recipient, sequence=1, kind="shutdown_request", body="{}", created=0.0)

    async with open_root_with_agent() as office:
        receipt = await office.station.authority.send(request("boss"))
        assert (receipt.recipient, receipt.transport) == ("boss", "control")
        with pytest.raises(NotAllowed, match="There is no bob that could end"):
            await office.station.authority.send(request("bob"))


async def test_an_agent_is_started_by_the_root_or_refused_with_its_reason() -> None:
    async with open_root_with_agent() as office:
        spawned = await office.station.spawner.spawn(SpawnRequest(task="t", definition="worker", name="bob"))
        assert spawned == Spawned(name="bob", incarnation=2, report=MessageId("r"))
        with pytest.raises(SpawnRefused, match="write it into a file"):
            await office.station.spawner.spawn(SpawnRequest(task="x" * 600_000, definition="worker"))
        with pytest.raises(SpawnRefused, match="there is no room"):
            await office.station.spawner.spawn(SpawnRequest(task="t", definition="worker"))


async def test_who_may_not_be_stopped_is_said_and_rest_is_waited_for() -> None:
    async with open_root_with_agent() as office:
        with pytest.raises(SpawnRefused, match=r"There is no bob that could be stopped\."):
            await office.station.spawner.stop("bob")
        await office.station.spawner.wait_until_idle()

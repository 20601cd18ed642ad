"""An agent's gate in another process is the session's gate: over a real socket, with the real gate at its end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal

import attrs
import pytest
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.usage import Usage
from coterie.agents.root_link.job_messages import AGENT_GONE, CompactionDone, CompactJob, NotCompacted
from coterie.agents.root_link.root_connection import NOT_STARTED, AgentHandlers
from coterie.agents.root_link.spawn_request import Spawned, SpawnRefused, SpawnRequest
from coterie.clock import Clock
from coterie.mailbox.envelope import Envelope, MessageId, Recipient, Sender
from coterie.mailbox.errors import NotAllowed
from coterie.orchestrator.gateway.admission import ModelGateway
from tests.orchestrator.supervisor.process_samples import ConnectedAgent, open_connected_agent

MODEL = known_models().get("sonnet")
INTENT = CallIntent(agent="ann", purpose="turn", model=MODEL, prompt_tokens=900, max_tokens=1_000, prefix=b"\0\xff")
USED = Usage(input=12, read=600, write_5m=300, output=40)


@asynccontextmanager
async def open_root_with_agent() -> AsyncIterator[tuple[ModelGateway, ConnectedAgent]]:
    gate = ModelGateway(Clock())
    with trio.fail_after(10):
        async with open_connected_agent(gate, "ann") as agent:
            yield gate, agent


async def settled() -> None:
    """Wait until both ends have received all messages."""
    await trio.testing.wait_all_tasks_blocked(0.01)


async def test_calls_are_charged_by_their_end() -> None:
    async with open_root_with_agent() as (gate, agent):
        async with agent.station.gate.admit(INTENT) as permit:
            assert gate.accounts.session.reserved == INTENT.reserve
            permit.begin()
            permit.settle(USED)
        await settled()
        session = gate.accounts.session
        assert (session.spent, session.reserved, session.estimated) == (MODEL.cost(USED), Decimal(0), Decimal(0))
        async with agent.station.gate.admit(INTENT) as permit:
            permit.void()
        await settled()
        assert session.spent == MODEL.cost(USED)
        async with agent.station.gate.admit(INTENT) as permit:
            permit.settle(USED, is_whole=False)
        await settled()
        assert session.estimated == MODEL.cost(attrs.evolve(USED, output=INTENT.max_tokens))


async def test_cancelled_admission_request_holds_no_permit() -> None:
    async with open_root_with_agent() as (gate, agent):
        agent.station.gate.cool_down(3600)
        with trio.move_on_after(0.05) as scope:
            async with agent.station.gate.admit(INTENT):
                pass
        assert scope.cancelled_caught
        await settled()
        assert gate.activity() == (0, 0)
        assert gate.accounts.session.reserved == 0
        assert gate.pause.opens_at > trio.current_time() + 3000
        with trio.CancelScope() as scope:  # the permit is granted during the cancellation
            scope.cancel()
            async with agent.station.gate.admit(INTENT):
                pass
        await settled()
        assert gate.activity() == (0, 0)


async def test_agent_killed_during_a_call_frees_its_slot_and_costs_the_maximum() -> None:
    with pytest.RaisesGroup(ControlLost):
        async with open_root_with_agent() as (gate, agent), agent.station.gate.admit(INTENT) as permit:
            permit.begin()
            await settled()
            agent.cut()
            await trio.sleep_forever()
    session = gate.accounts.session
    assert gate.activity() == (0, 0)
    assert (session.reserved, session.estimated) == (Decimal(0), INTENT.reserve)


async def test_compaction_returns_not_compacted_when_the_agent_dies() -> None:
    answers: list[object] = []

    async def ask(agent: ConnectedAgent) -> None:
        answers.append(await agent.desk.compact(None))

    async with trio.open_nursery() as nursery:
        with pytest.RaisesGroup(ControlLost, flatten_subgroups=True):
            async with open_root_with_agent() as (_, agent):
                await ask(agent)
                with agent.station.handling(AgentHandlers(compact=_never)):
                    nursery.start_soon(ask, agent)
                    await settled()
                    agent.cut()
                    await trio.sleep_forever()
    assert answers == [NotCompacted(reason=NOT_STARTED), NotCompacted(reason=AGENT_GONE)]
    with pytest.raises(ControlLost):
        await agent.desk.compact(None)


async def _never(_job: CompactJob) -> CompactionDone | NotCompacted:
    await trio.sleep_forever()
    raise AssertionError


def shutdown_request(name: str) -> Envelope:
    sender = Sender(name="ann", incarnation=1, session="s", kind="lead")
    recipient = Recipient(name=name, incarnation=1)
    return Envelope(sender=sender, recipient=recipient, sequence=1, kind="shutdown_request", body="{}", created=0.0)


async def test_requests_of_an_agent_are_served_or_refused_with_a_reason() -> None:
    async with open_root_with_agent() as (_, agent):
        spawned = await agent.station.services.spawn(SpawnRequest(task="t", definition="worker", name="bob"))
        assert spawned == Spawned(name="bob", incarnation=2, report=MessageId("r"))
        with pytest.raises(SpawnRefused, match="Write it to a file"):
            await agent.station.services.spawn(SpawnRequest(task="x" * 600_000, definition="worker"))
        with pytest.raises(SpawnRefused, match="there is no room"):
            await agent.station.services.spawn(SpawnRequest(task="t", definition="worker"))
        with pytest.raises(SpawnRefused, match=r"There is no bob that could be stopped\."):
            await agent.station.services.stop("bob")
        await agent.station.services.wait_until_idle()
        receipt = await agent.station.services.send(shutdown_request("boss"))
        assert (receipt.recipient, receipt.transport) == ("boss", "control")
        with pytest.raises(NotAllowed, match="There is no bob that could end"):
            await agent.station.services.send(shutdown_request("bob"))

"""Compaction on demand, which runs in the agent's task, between two calls or during a wait."""

from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.layers.layer4_compaction.on_demand import (
    NO_SUMMARY,
    SWITCHED_OFF,
    TOO_SHORT,
    OnDemandCompaction,
    PendingCompaction,
)
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.root_link.job_messages import CompactionDone, CompactJob, NotCompacted, Pivot, Side
from coterie.agents.runtime.mail_loop import run_mail_loop
from coterie.agents.runtime.team_membership import TeamMembership
from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter
from coterie.mailbox.envelope import Sender
from coterie.mailbox.message_bodies import ShutdownRequest
from coterie.mailbox.roster import LocalRoster
from coterie.mailbox.router import OutgoingMessage, Router
from coterie.mailbox.transports.in_process.transport import QueueTransport
from coterie.memory.layer_settings import ClearingSettings, CompactionSettings, LayersSettings
from tests.agents.in_process_team import NoKeys
from tests.agents.opened_layers import with_mail, with_on_demand_compaction
from tests.agents.scripted_agent import NotingTool, open_agent

LIMITS = RunLimits(turns=20)
LAYERS = LayersSettings(clearing=ClearingSettings(by_time=False, by_cache=False, by_api=False))
LITTLE = CompactionSettings(keep_least=1, keep_texts=1)
"""Settings with which only the last message stays."""
USER = Sender(name="user", incarnation=1, session="s", kind="human")
SCRIPT = """
main:
  - {text: one, tools: [{Note: {text: "1"}}]}
  - {text: two, tools: [{Note: {text: "2"}}]}
  - text: three
  - text: "heard: {{last_user_text}}"
  - text: bye
default:
  - {purpose: compaction, times: always, text: "<summary>Went well.</summary>"}
"""


def asking(*jobs: CompactJob) -> tuple[OnDemandCompaction, list[PendingCompaction]]:
    """Compaction on demand with *jobs* as pending requests."""
    by_hand = OnDemandCompaction(CompactionStep(settings=LITTLE))
    return by_hand, [by_hand.enqueue(job) for job in jobs]


async def test_busy_agent_is_compacted_before_its_next_model_call(tmp_path: Path) -> None:
    by_hand, pending = asking()

    async def note(text: str) -> str:
        if text == "2":
            pending.append(by_hand.enqueue(CompactJob()))
        return text

    async with open_agent(SCRIPT, tmp_path, NotingTool(name="Note", act=note), layers=LAYERS) as (agent, server):
        agent.pipeline = with_on_demand_compaction(agent.pipeline, by_hand)
        ended = await run_loop(agent, LIMITS)
        assert ended.text == "three"
        assert [entry["purpose"] for entry in server.requests] == ["turn", "turn", "compaction", "turn"]
        answer = await pending[0].wait()
        assert isinstance(answer, CompactionDone)
        assert (answer.by, answer.left) == ("summary", 3)
        assert "Went well." in agent.conversation.messages[0].blocks[0].decode()


async def test_every_compaction_request_is_answered(tmp_path: Path) -> None:
    by_hand, pending = asking(CompactJob(pivot=Pivot(side="from", message=9)), CompactJob(), CompactJob())
    async with open_agent(SCRIPT, tmp_path, NotingTool(name="Note"), layers=LAYERS) as (agent, _):
        await run_loop(agent, LIMITS)
        await by_hand.serve(agent)
    assert [type(asked.answer) for asked in pending] == [NotCompacted, CompactionDone, NotCompacted]


def pivot(side: Side, message: int) -> CompactJob:
    return CompactJob(pivot=Pivot(side=side, message=message))


@pytest.mark.parametrize(
    ("settings", "job", "reason", "is_for_user"),
    [
        (LITTLE, pivot("from", 7), "message 7 does not exist: the conversation has 6 messages", True),
        (LITTLE, pivot("up_to", 0), "message 0 does not exist: the conversation has 6 messages", True),
        (LITTLE, pivot("up_to", 1), TOO_SHORT, False),
        (LITTLE, pivot("up_to", 2), TOO_SHORT, False),
        (attrs.evolve(LITTLE, by_model=False), CompactJob(), NO_SUMMARY, False),
        (None, CompactJob(), SWITCHED_OFF, False),
    ],
)
async def test_impossible_request_changes_nothing(
    tmp_path: Path, settings: CompactionSettings | None, job: CompactJob, reason: str, *, is_for_user: bool
) -> None:
    async with open_agent(SCRIPT, tmp_path, NotingTool(name="Note"), layers=LAYERS) as (agent, _):
        await run_loop(agent, LIMITS)
        before = agent.conversation.prefix_bytes()
        by_hand = OnDemandCompaction(None if settings is None else CompactionStep(settings=settings))
        answer = await by_hand.run_request(agent, job)
        assert answer == NotCompacted(reason=reason, is_for_user=is_for_user)
        assert agent.conversation.prefix_bytes() == before


@attrs.frozen
class Idle:
    """Counter of the agent's idle periods."""

    on_reply: list[str] = attrs.field(factory=list)

    async def until(self, times: int) -> None:
        """Wait until the agent has been idle *count* times."""
        while self.on_reply.count("idle") < times:
            await trio.testing.wait_all_tasks_blocked(0.01)


@pytest.mark.parametrize("pivot", [None, Pivot(side="from", message=2)])
@pytest.mark.parametrize("comes_first", ["request", "message"])
async def test_idle_agent_is_compacted_immediately_and_receives_pending_mail(
    tmp_path: Path, pivot: Pivot | None, comes_first: str
) -> None:
    """A compaction that ends the conversation with a summary also delivers the mail, and the mail wakes the agent."""
    dead: list[DeadLetter] = []
    roster = LocalRoster()
    roster.join("main")
    transport = QueueTransport(roster, None, Clock(), dead.append)
    router, idle = Router(roster, NoKeys(), transport), Idle()
    async with (
        open_agent(SCRIPT, tmp_path, NotingTool(name="Note"), layers=LAYERS) as (agent, server),
        transport.open_inbox("main", 1) as inbox,
        trio.open_nursery() as nursery,
    ):
        mail = Messaging(inbox)
        by_hand = OnDemandCompaction(CompactionStep(settings=LITTLE, mail=mail))
        agent.pipeline = with_mail(with_on_demand_compaction(agent.pipeline, by_hand), mail)
        membership = TeamMembership(router=router, sender=attrs.evolve(USER, name="main", kind="lead"))

        async def run() -> None:
            await run_mail_loop(agent, mail, LIMITS, membership, idle.on_reply.append, idle_wait=by_hand.serve_while)

        nursery.start_soon(run)
        await idle.until(1)
        await by_hand.request(CompactJob(pivot=pivot))
        assert [entry["purpose"] for entry in server.requests] == ["turn"] * 3 + ["compaction"], (
            "nothing was to be done"
        )
        assert idle.on_reply.count("idle") == 1

        last = CompactJob(pivot=Pivot(side="from", message=1))
        if comes_first == "request":
            pending = by_hand.enqueue(last)
        await router.send(USER, OutgoingMessage(to="main", body="Wake up."))
        if comes_first == "message":
            pending = by_hand.enqueue(last)
        await idle.until(2)
        assert [entry["purpose"] for entry in server.requests].count("turn") == 4, "it was woken, and once"
        assert len(load_transcript(agent.transcript.path).mail) == 1
        assert pending.answer is not None
        await router.send(USER, OutgoingMessage(to="main", body=ShutdownRequest().to_body(), kind="shutdown_request"))
    assert dead == []

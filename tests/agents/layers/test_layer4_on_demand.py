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
)
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.root_link.job_messages import CompactionDone, CompactJob, NotCompacted, Pivot, Side
from coterie.agents.runtime.mail_loop import run_mail_loop
from coterie.agents.runtime.team_membership import TeamMembership
from coterie.mailbox.message_bodies import ShutdownRequest
from coterie.mailbox.router import OutgoingMessage
from coterie.memory.layer_settings import ClearingSettings, CompactionSettings, LayersSettings
from tests.agents.in_process_team import LocalMail
from tests.agents.opened_layers import with_mail, with_on_demand_compaction
from tests.agents.scripted_agent import NotingTool, open_agent

LIMITS = RunLimits(turns=20)
LAYERS = LayersSettings(clearing=ClearingSettings.none())
LITTLE = CompactionSettings(keep_least=1, keep_texts=1)
"""Settings with which only the last message stays."""
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


async def test_busy_agent_is_compacted_before_its_next_model_call(tmp_path: Path) -> None:
    """Every request is answered, an impossible one too."""
    by_hand = OnDemandCompaction(CompactionStep(settings=LITTLE))
    pending = [by_hand.enqueue(CompactJob(pivot=Pivot(side="from", message=9)))]

    async def note(text: str) -> str:
        if text == "2":
            pending.extend(by_hand.enqueue(CompactJob()) for _ in range(2))
        return text

    async with open_agent(SCRIPT, tmp_path, NotingTool(name="Note", act=note), layers=LAYERS) as (agent, server):
        agent.pipeline = with_on_demand_compaction(agent.pipeline, by_hand)
        ended = await run_loop(agent, LIMITS)
        assert ended.text == "three"
        assert [entry["purpose"] for entry in server.requests] == ["turn", "turn", "compaction", "turn"]
        await by_hand.serve(agent)
        refused, answer, late = [await each.wait() for each in pending]
        assert isinstance(refused, NotCompacted)
        assert isinstance(late, NotCompacted)
        assert isinstance(answer, CompactionDone)
        assert (answer.by, answer.left) == ("summary", 3)
        assert "Went well." in agent.conversation.messages[0].blocks[0].decode()


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


@pytest.mark.parametrize("pivot", [None, Pivot(side="from", message=2)])
@pytest.mark.parametrize("comes_first", ["request", "message"])
async def test_idle_agent_is_compacted_immediately_and_receives_pending_mail(
    tmp_path: Path, pivot: Pivot | None, comes_first: str
) -> None:
    """A compaction that ends the conversation with a summary also delivers the mail, and the mail wakes the agent."""
    post, states = LocalMail(), list[str]()
    post.roster.join("main")

    async def until_idle(times: int) -> None:
        while states.count("idle") < times:
            await trio.testing.wait_all_tasks_blocked(0.01)

    async with (
        open_agent(SCRIPT, tmp_path, NotingTool(name="Note"), layers=LAYERS) as (agent, server),
        post.transport.open_inbox("main", 1) as inbox,
        trio.open_nursery() as nursery,
    ):
        mail = Messaging(inbox)
        by_hand = OnDemandCompaction(CompactionStep(settings=LITTLE, mail=mail))
        agent.pipeline = with_mail(with_on_demand_compaction(agent.pipeline, by_hand), mail)
        membership = TeamMembership(router=post.router, sender=post.sender("main"))

        async def run() -> None:
            await run_mail_loop(agent, mail, LIMITS, membership, states.append, idle_wait=by_hand.serve_while)

        nursery.start_soon(run)
        await until_idle(1)
        await by_hand.request(CompactJob(pivot=pivot))
        assert [entry["purpose"] for entry in server.requests] == ["turn"] * 3 + ["compaction"], (
            "nothing was to be done"
        )
        assert states.count("idle") == 1

        last = CompactJob(pivot=Pivot(side="from", message=1))
        if comes_first == "request":
            pending = by_hand.enqueue(last)
        await post.router.send(post.sender("user"), OutgoingMessage(to="main", body="Wake up."))
        if comes_first == "message":
            pending = by_hand.enqueue(last)
        await until_idle(2)
        assert [entry["purpose"] for entry in server.requests].count("turn") == 4, "it was woken, and once"
        assert len(load_transcript(agent.transcript.path).mail) == 1
        assert pending.answer is not None
        await post.router.send(
            post.sender("user"), OutgoingMessage(to="main", body=ShutdownRequest().to_body(), kind="shutdown_request")
        )
    assert post.dead == []

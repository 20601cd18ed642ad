"""Compaction inside open tool loops of a thinking model, with the strict embedded server."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.events.layer_events import BreakerTripped, CacheBroke, Compacted, LayerFailed, NotesUpdated
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.layers.layer4_compaction.on_demand import (
    NO_SUMMARY,
    SWITCHED_OFF,
    TOO_SHORT,
    OnDemandCompaction,
)
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.conversation.transcript_records import UserTextRecord
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.catalog import load_models
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.root_link.job_messages import CompactionDone, CompactJob, NotCompacted, Pivot, Side
from coterie.agents.runtime.mail_loop import TeamMembership, run_mail_loop
from coterie.agents.tools.files.edit import Edit
from coterie.mailbox.message_bodies import ShutdownRequest
from coterie.mailbox.router import OutgoingMessage
from coterie.memory.layer_settings import ClearingSettings, CompactionSettings, LayersSettings, NotesSettings
from tests.agents.in_process_team import LocalMail
from tests.agents.opened_layers import begin_section, open_notes, with_mail, with_on_demand_compaction
from tests.agents.scripted_agent import NotingTool, ObservedAgent, open_agent, watch

LAYERS = LayersSettings(clearing=ClearingSettings(by_time=False, by_cache=False, by_api=False))
LIMITS = RunLimits(turns=400)
WINDOW = 73_000
"""Window in tokens; 40,000 remain after the reserve and the margin."""
SUMMARY = {"purpose": "compaction", "times": "always", "text": "<analysis>hm</analysis><summary>Went well.</summary>"}


def working(turns: int, *others: dict[str, Any], thinks: bool = True) -> str:
    """Return a script with tool calls in so many *turns*, then an answer."""
    thought = {"thinking": "what next"} if thinks else {}
    replies = [{**thought, "text": f"step {n}", "tools": [{"Note": {"text": str(n)}}]} for n in range(turns)]
    return json.dumps({"default": [*others, *replies, {"text": "done"}, {"text": "done again"}]})


def long(size: int) -> Callable[[str], str]:
    """Return a tool result of about *size* characters, different for each call."""
    return lambda word: f"result_{word} of /src/file_{word}.py: " + "lorem ipsum " * (size // 12)


def dense(size: int) -> Callable[[str], str]:
    """Return a result for which the API counts more tokens than the estimate."""
    return lambda word: f"result_{word} " + "€§" * (size // 2)


def small_window(directory: Path, window: int) -> Path:
    """Return a model table in which claude-opus-5-5 has this window."""
    path = directory / "models.toml"
    path.write_text(f'[models."claude-opus-5-5"]\nwindow = {window}\n')
    return path


def noting(directory: Path, heading: str = "Current State", text: str = "Noted at {{turn}}.") -> dict[str, Any]:
    return {"purpose": "notes", "times": "always", "tools": [begin_section(directory, heading, text)]}


def text_of(agent: Agent) -> str:
    return agent.conversation.prefix_bytes().decode()


TOOL = NotingTool(name="Note", act=long(8_000))


@attrs.frozen(kw_only=True)
class Work(ObservedAgent):
    """An agent that is compacted, its events and the server."""

    compact: CompactionStep


@asynccontextmanager
async def open_work(
    directory: Path,
    script: str,
    *,
    tool: NotingTool = TOOL,
    notes: NotesSettings | None = None,
    settings: CompactionSettings | None = None,
    window: int = WINDOW,
    **options: Any,
) -> AsyncIterator[Work]:
    """Open an agent with layer 4, and with layer 3 if it has settings."""
    compact = CompactionStep(settings=settings or CompactionSettings())
    tools = (tool, Edit()) if notes else (tool,)
    async with AsyncExitStack() as stack:
        opened = open_agent(script, directory, *tools, layers=LAYERS, window=window, compact=compact, **options)
        agent, served = await stack.enter_async_context(opened)
        if notes:
            compact.notes = await stack.enter_async_context(open_notes(agent, notes))
        yield Work(agent=agent, events=watch(agent), served=served, compact=compact)


async def test_full_context_is_summarised_and_event_reports_removed_and_restored_content(tmp_path: Path) -> None:
    """A resumed agent has the bytes of the compacted one."""
    async with open_work(tmp_path, working(22, SUMMARY)) as work:
        assert (await work.run(text="done")).turns == 23
        assert set(work.statuses) == {200}
        assert not work.of_type(CacheBroke)
        assert not work.failures
        assert "Went well." in text_of(work.agent)
        assert "<user-message>\\nthe task\\n</user-message>" in text_of(work.agent)
        [compacted] = work.of_type(Compacted)
        assert (compacted.trigger, compacted.by) == ("threshold", "summary")
        assert compacted.tokens_after <= 30_000 <= compacted.tokens_before
        assert compacted.where == str(tmp_path / "transcript.jsonl")
        assert (compacted.words, compacted.words_added) == (1, 1)
        gone = [word for word in compacted.dropped if word.startswith("/src/file_")]
        assert gone
        assert all(word not in text_of(work.agent) for word in gone)
        assert compacted.dropped_count >= len(compacted.dropped)
        boundary = load_transcript(tmp_path / "transcript.jsonl").boundary
        assert boundary is not None
        assert (boundary.by, boundary.parts, boundary.failures) == ("summary", ["summary", "words"], 0)
        assert list(compacted.passed_over) == ["notes"]
        assert compacted.passed_over["notes"].startswith("session notes are switched off")
        assert boundary.left == compacted.left
        sent, words = work.agent.conversation.prefix_bytes(), list(work.agent.user_texts)
    async with open_work(tmp_path, working(22, SUMMARY)) as work:
        assert work.agent.conversation.prefix_bytes() == sent
        assert work.agent.user_texts == words == ["the task"]


async def test_failed_summaries_trip_breaker_and_run_continues(tmp_path: Path) -> None:
    """The breaker stays open after a resume."""
    empty = {"purpose": "compaction", "times": "always", "text": "<summary></summary>"}
    async with open_work(tmp_path, working(60, empty)) as work:
        await work.run()
        assert len(work.of_type(Compacted)) > 3
        assert {each.by for each in work.of_type(Compacted)} == {"rule"}
        whys = [each.passed_over["summary"] for each in work.of_type(Compacted)]
        failure = "the model's reply has no summary in it; Coterie continues without one"
        assert whys[:4] == [failure] * 3 + ["the last 3 summaries failed, so no model is asked"]
        assert len(work.failures) == 3
        [tripped] = work.of_type(BreakerTripped)
        assert (tripped.failures, tripped.reason) == (3, failure)
        assert len(work.requests("compaction")) == 3
        assert "the task" in text_of(work.agent)
        boundary = load_transcript(work.agent.transcript.path).boundary
        assert boundary is not None
        assert boundary.failures == 3
    async with open_work(tmp_path, working(99, empty)) as work:
        await work.run("go on")
        assert work.of_type(Compacted)
        assert not work.requests("compaction")


async def test_earlier_summary_survives_compaction_by_rule(tmp_path: Path) -> None:
    async with open_work(tmp_path, working(40, {**SUMMARY, "times": 1})) as work:
        await work.run()
        assert [each.by for each in work.of_type(Compacted)][:2] == ["summary", "rule"]
        assert "Went well.\\n\\n(" in text_of(work.agent)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"text": "no", "stop": "refusal"}, "cut off or refused"),
        ({"text": "<summary>" + "far too long " * 5_000 + "</summary>"}, "tokens, over "),
        ({"text": "-", "fault": {"kind": "error", "count": "always"}}, "500"),
    ],
    ids=["refused", "too long", "an error"],
)
async def test_unusable_summary_leads_to_next_strategy(reply: dict[str, Any], reason: str, tmp_path: Path) -> None:
    async with open_work(tmp_path, working(22, {"purpose": "compaction", "times": "always", **reply})) as work:
        await work.run()
        [failed] = work.of_type(LayerFailed)
        assert (failed.layer, reason in failed.reason) == ("compaction", True), failed.reason
        assert [each.by for each in work.of_type(Compacted)] == ["rule"]


async def test_notes_replace_summary_without_model_call(tmp_path: Path) -> None:
    async def after_the_notes(word: str) -> str:
        assert work.compact.notes is not None
        await work.compact.notes.wait_until_written()
        return long(8_000)(word)

    tool = NotingTool(name="Note", act=after_the_notes)
    notes = NotesSettings(first=5_000, step=3_000, share=1.0)
    async with open_work(tmp_path, working(60, noting(tmp_path)), tool=tool, notes=notes) as work:
        await work.run()
        assert len(work.of_type(Compacted)) >= 3
        assert {(each.by, each.cost_usd) for each in work.of_type(Compacted)} == {("notes", "0")}
        assert not work.failures
        assert not work.of_type(CacheBroke)
        assert "Noted at" in text_of(work.agent)
        assert "the task" in text_of(work.agent)
        assert {entry["purpose"] for entry in work.served.requests} == {"turn", "notes"}
        assert set(work.statuses) == {200}


ONE_UPDATE = NotesSettings(first=5_000, step=100_000, share=1.0)


async def test_model_is_called_if_notes_do_not_cover_enough_turns(tmp_path: Path) -> None:
    """The section of errors is added to the summary."""
    script = working(22, noting(tmp_path, "Errors & Corrections", "Never touch foo_bar."), SUMMARY)
    async with open_work(tmp_path, script, notes=ONE_UPDATE) as work:
        await work.run()
        types = [type(event) for event in work.events if isinstance(event, NotesUpdated | Compacted)]
        assert types == [NotesUpdated, Compacted]
        [compacted] = work.of_type(Compacted)
        assert compacted.by == "summary"
        assert compacted.passed_over["notes"].startswith("the notes do not cover the last ")
        assert "the context has grown too little" in compacted.passed_over["notes"]
        assert "Never touch foo_bar." in text_of(work.agent)
        assert "Went well." in text_of(work.agent)


async def test_prompt_rejected_as_too_long_is_compacted_and_retried(tmp_path: Path) -> None:
    """The estimate was too low and the summary request is too long as well, so the oldest rounds are omitted."""
    models = load_models(small_window(tmp_path, 60_000))
    tool = NotingTool(name="Note", act=dense(9_000))
    async with open_work(tmp_path, working(30, SUMMARY), tool=tool, window=400_000, models=models) as work:
        await work.run()
        assert {(each.trigger, each.by) for each in work.of_type(Compacted)} == {("overflow", "summary")}
        assert 400 in work.statuses
        assert "the task" in text_of(work.agent)


async def test_message_longer_than_window_is_stored_in_file(tmp_path: Path) -> None:
    words = " ".join(f"word{n}" for n in range(40_000))
    async with open_work(tmp_path, working(1, SUMMARY), tool=NotingTool(name="Note")) as work:
        await work.run()
        work.agent.append_message("user", [text_block(words)], UserTextRecord(texts=[words]))
        await work.run(text="done again")
        [compacted] = work.of_type(Compacted)
        assert compacted.tokens_after < 40_000
        [stored] = [path for path in (tmp_path / "tool-results").iterdir() if path.read_text() == words]
        assert str(stored) in text_of(work.agent)
        assert "word999999" not in text_of(work.agent)


async def test_summary_is_made_in_parts_when_conversation_is_too_long(tmp_path: Path) -> None:
    models = load_models(small_window(tmp_path, 60_000))
    tool = NotingTool(name="Note", act=long(130_000), result_cap=None)
    async with open_work(tmp_path, working(3, SUMMARY), tool=tool, window=100_000, models=models) as work:
        await work.run()
        assert {(each.trigger, each.by) for each in work.of_type(Compacted)} == {("overflow", "chunks")}
        assert [entry["status"] for entry in work.requests("compaction")].count(200) > 1


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
        (LITTLE, pivot("from", 7), "message 7 does not exist in the conversation; give a number from 1 to 6", True),
        (LITTLE, pivot("up_to", 0), "message 0 does not exist in the conversation; give a number from 1 to 6", True),
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

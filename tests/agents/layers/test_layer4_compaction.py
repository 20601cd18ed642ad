"""Compaction inside open tool loops of a thinking model, with the strict embedded server."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.events.layer_events import BreakerTripped, CacheBroke, Compacted, LayerFailed, NotesUpdated
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.conversation.transcript_records import UserTextRecord
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.catalog import load_models
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.root_link.job_messages import Pivot, Side
from coterie.agents.tools.files.edit import Edit
from coterie.memory.layer_settings import ClearingSettings, CompactionSettings, LayersSettings, NotesSettings
from coterie.memory.notes.template import default_template
from tests.agents.opened_layers import open_notes
from tests.agents.scripted_agent import NotingTool, ObservedAgent, open_agent, watch

LAYERS = LayersSettings(clearing=ClearingSettings(by_time=False, by_cache=False, by_api=False))
LIMITS = RunLimits(turns=400)
WINDOW = 73_000
"""Window in tokens; 40,000 remain after the reserve and the margin."""
HINTS = {section.heading: section.hint[0] for section in default_template().sections if section.heading}
SUMMARY = {"purpose": "compaction", "times": "always", "text": "<analysis>hm</analysis><summary>Went well.</summary>"}


def working(turns: int, *others: dict[str, Any]) -> str:
    """Return a script with *count* thinking tool calls, then an answer."""
    replies = [
        {"thinking": "what next", "text": f"step {n}", "tools": [{"Note": {"text": str(n)}}]} for n in range(turns)
    ]
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
    """Return a reply of the notes helper, which begins a section."""
    hint = HINTS[heading]
    edit = {"file_path": str(directory / "notes.md"), "old_string": hint, "new_string": f"{hint}\n{text}"}
    return {"purpose": "notes", "times": "always", "tools": [{"Edit": edit}]}


def text_of(agent: Agent) -> str:
    return agent.conversation.prefix_bytes().decode()


TOOL = NotingTool(name="Note", act=long(8_000))


@attrs.frozen(kw_only=True)
class Work(ObservedAgent):
    """An agent that is compacted, its events and the server."""

    compact: CompactionStep

    async def run(self, text: str = "done") -> None:
        """Run the loop to its end, and check the last text."""
        assert (await run_loop(self.agent, LIMITS)).text == text

    @property
    def compacted(self) -> list[Compacted]:
        """All emitted compactions."""
        return self.of_type(Compacted)

    def statuses(self) -> set[int]:
        """HTTP statuses of all replies."""
        return {entry["status"] for entry in self.served.requests}


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


async def test_full_context_is_summarised_by_model_and_run_continues(tmp_path: Path) -> None:
    async with open_work(tmp_path, working(40, SUMMARY)) as work:
        ended = await run_loop(work.agent, LIMITS)
        assert (ended.reason, ended.text, ended.turns) == ("completed", "done", 41)
        assert len(work.compacted) >= 2
        assert {(each.trigger, each.by) for each in work.compacted} == {("threshold", "summary")}
        assert all(each.tokens_after <= 30_000 <= each.tokens_before for each in work.compacted)
        assert not work.of_type(CacheBroke)
        assert not work.failures
        assert "Went well." in text_of(work.agent)
        assert "<user-message>\\nthe task\\n</user-message>" in text_of(work.agent)
        assert work.statuses() == {200}


async def test_compaction_event_reports_removed_and_restored_content(tmp_path: Path) -> None:
    async with open_work(tmp_path, working(22, SUMMARY)) as work:
        await work.run()
        [compacted] = work.compacted
        assert compacted.where == str(tmp_path / "transcript.jsonl")
        assert (compacted.words, compacted.words_added) == (1, 1)
        gone = [word for word in compacted.dropped if word.startswith("/src/file_")]
        assert gone
        assert all(word not in text_of(work.agent) for word in gone)
        assert compacted.dropped_count >= len(compacted.dropped)
        boundary = load_transcript(tmp_path / "transcript.jsonl").boundary
        assert boundary is not None
        assert (boundary.by, boundary.parts, boundary.failures) == ("summary", ["summary", "words"], 0)
        assert compacted.passed_over == {"notes": "switched off"}
        assert boundary.left == compacted.left


async def test_resumed_agent_sends_bytes_of_compacted_one(tmp_path: Path) -> None:
    async with open_work(tmp_path, working(22, SUMMARY)) as work:
        await work.run()
        sent, words = work.agent.conversation.prefix_bytes(), list(work.agent.user_texts)
    async with open_work(tmp_path, working(22, SUMMARY)) as work:
        assert work.agent.conversation.prefix_bytes() == sent
        assert work.agent.user_texts == words == ["the task"]


async def test_failed_summaries_trip_breaker_and_run_continues(tmp_path: Path) -> None:
    """The breaker stays open after a resume."""
    empty = {"purpose": "compaction", "times": "always", "text": "<summary></summary>"}
    async with open_work(tmp_path, working(60, empty)) as work:
        await work.run()
        assert len(work.compacted) > 3
        assert {each.by for each in work.compacted} == {"rule"}
        whys = [each.passed_over["summary"] for each in work.compacted]
        assert whys[:4] == ["the reply has no summary in it"] * 3 + ["the last 3 summaries failed"]
        assert len(work.failures) == 3
        [tripped] = work.of_type(BreakerTripped)
        assert (tripped.failures, tripped.reason) == (3, "the reply has no summary in it")
        assert len(work.requests("compaction")) == 3
        assert "the task" in text_of(work.agent)
        boundary = load_transcript(work.agent.transcript.path).boundary
        assert boundary is not None
        assert boundary.failures == 3
    async with open_work(tmp_path, working(99, empty)) as work:
        work.agent.append_message("user", [text_block("go on")])
        await work.run()
        assert work.compacted
        assert not work.requests("compaction")


async def test_earlier_summary_survives_compaction_by_rule(tmp_path: Path) -> None:
    async with open_work(tmp_path, working(40, {**SUMMARY, "times": 1})) as work:
        await work.run()
        assert [each.by for each in work.compacted][:2] == ["summary", "rule"]
        assert "Went well.\\n\\n(" in text_of(work.agent)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"text": "<summary>half", "stop": "max_tokens"}, "cut off or refused"),
        ({"text": "no", "stop": "refusal"}, "cut off or refused"),
        ({"text": "<analysis>nothing but thoughts</analysis>"}, "no summary in it"),
        ({"text": "<summary>" + "far too long " * 5_000 + "</summary>"}, "tokens; at most"),
        ({"text": "-", "fault": {"kind": "error", "count": "always"}}, "500"),
    ],
    ids=["cut", "refused", "empty", "too long", "an error"],
)
async def test_unusable_summary_leads_to_next_strategy(reply: dict[str, Any], reason: str, tmp_path: Path) -> None:
    async with open_work(tmp_path, working(22, {"purpose": "compaction", "times": "always", **reply})) as work:
        await work.run()
        [failed] = work.of_type(LayerFailed)
        assert (failed.layer, reason in failed.reason) == ("compaction", True), failed.reason
        assert [each.by for each in work.compacted] == ["rule"]


async def test_summary_without_tags_is_used_unchanged(tmp_path: Path) -> None:
    script = working(22, {"purpose": "compaction", "text": "All that happened was good."})
    async with open_work(tmp_path, script) as work:
        await work.run()
        assert [each.by for each in work.compacted] == ["summary"]
        assert "All that happened was good." in text_of(work.agent)


async def test_notes_replace_summary_without_model_call(tmp_path: Path) -> None:
    async def after_the_notes(word: str) -> str:
        assert work.compact.notes is not None
        await work.compact.notes.wait_until_written()
        return long(8_000)(word)

    tool = NotingTool(name="Note", act=after_the_notes)
    notes = NotesSettings(first=5_000, step=3_000, share=1.0)
    async with open_work(tmp_path, working(60, noting(tmp_path)), tool=tool, notes=notes) as work:
        await work.run()
        assert len(work.compacted) >= 3
        assert {(each.by, each.cost_usd) for each in work.compacted} == {("notes", "0")}
        assert not work.failures
        assert not work.of_type(CacheBroke)
        assert "Noted at" in text_of(work.agent)
        assert "the task" in text_of(work.agent)
        assert {entry["purpose"] for entry in work.served.requests} == {"turn", "notes"}
        assert work.statuses() == {200}


ONE_UPDATE = NotesSettings(first=5_000, step=100_000, share=1.0)


async def test_turns_not_covered_by_notes_stay(tmp_path: Path) -> None:
    """If too many turns would stay, the model is called instead."""
    async with open_work(tmp_path, working(22, noting(tmp_path), SUMMARY), notes=ONE_UPDATE) as work:
        await work.run()
        types = [type(event) for event in work.events if isinstance(event, NotesUpdated | Compacted)]
        assert types == [NotesUpdated, Compacted]
        [compacted] = work.compacted
        assert compacted.by == "summary"
        assert compacted.passed_over["notes"].startswith("the notes do not cover the last ")
        assert "the context has grown too little" in compacted.passed_over["notes"]


async def test_compaction_event_gives_reason_for_missing_notes(tmp_path: Path) -> None:
    notes = NotesSettings(first=5_000, share=0.000_001)
    async with open_work(tmp_path, working(22, SUMMARY), notes=notes) as work:
        await work.run()
        [compacted] = work.compacted
        why = "there are no notes: another update would cost more than the notes' share of the cost of turns"
        assert compacted.passed_over == {"notes": why}


async def test_errors_section_of_notes_is_added_to_summary(tmp_path: Path) -> None:
    script = working(22, noting(tmp_path, "Errors & Corrections", "Never touch foo_bar."), SUMMARY)
    settings = CompactionSettings(by_notes=False)
    async with open_work(tmp_path, script, notes=ONE_UPDATE, settings=settings) as work:
        await work.run()
        assert "Never touch foo_bar." in text_of(work.agent)
        assert "Went well." in text_of(work.agent)


async def test_prompt_rejected_as_too_long_is_compacted_and_retried(tmp_path: Path) -> None:
    """The estimate was too low and the summary request is too long as well, so the oldest rounds are omitted."""
    models = load_models(small_window(tmp_path, 60_000))
    tool = NotingTool(name="Note", act=dense(9_000))
    async with open_work(tmp_path, working(30, SUMMARY), tool=tool, window=400_000, models=models) as work:
        await work.run()
        assert {(each.trigger, each.by) for each in work.compacted} == {("overflow", "summary")}
        assert 400 in work.statuses()
        assert "the task" in text_of(work.agent)


async def test_message_longer_than_window_is_stored_in_file(tmp_path: Path) -> None:
    words = " ".join(f"word{n}" for n in range(40_000))
    async with open_work(tmp_path, working(1, SUMMARY), tool=NotingTool(name="Note")) as work:
        await work.run()
        work.agent.append_message("user", [text_block(words)], UserTextRecord(texts=[words]))
        await work.run("done again")
        [compacted] = work.compacted
        assert compacted.tokens_after < 40_000
        [stored] = [path for path in (tmp_path / "tool-results").iterdir() if path.read_text() == words]
        assert str(stored) in text_of(work.agent)
        assert "word999999" not in text_of(work.agent)


async def test_summary_is_made_in_parts_when_conversation_is_too_long(tmp_path: Path) -> None:
    models = load_models(small_window(tmp_path, 60_000))
    tool = NotingTool(name="Note", act=long(130_000), result_cap=None)
    async with open_work(tmp_path, working(3, SUMMARY), tool=tool, window=100_000, models=models) as work:
        await work.run()
        assert {(each.trigger, each.by) for each in work.compacted} == {("overflow", "chunks")}
        assert [entry["status"] for entry in work.requests("compaction")].count(200) > 1


@pytest.mark.parametrize("side", ["from", "up_to"])
async def test_selected_part_is_compacted_on_request(side: Side, tmp_path: Path) -> None:
    tool = NotingTool(name="Note", act=long(12_000))
    async with open_work(tmp_path, working(8, SUMMARY), tool=tool, window=200_000) as work:
        await work.run()
        before = work.agent.conversation.messages
        told = await work.compact.compact(work.agent, "manual", Pivot(side=side, message=7))
        assert told is not None
        after = work.agent.conversation.messages
        if side == "from":
            assert after[:5] == before[:5]
            assert len(after) == 6
            assert told.left == len(before) - 5
        else:
            assert len(after) == 1 + len(before) - 5
            assert [m.role for m in after[1:]] == [m.role for m in before[5:]]
            assert told.left == 5
        work.agent.append_message("user", [text_block("and now?")])
        await work.run("done again")
        last = work.served.requests[-1]
        assert last["status"] == 200
        if side == "from":
            assert last["usage"]["cache_read_input_tokens"] > 6_000

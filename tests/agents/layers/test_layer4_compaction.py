"""Compaction inside open tool loops of a thinking model, with the strict embedded server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.events.agent_events import Event
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
from tests.agents.opened_layers import open_notes
from tests.agents.scripted_agent import NotingTool, open_agent, watch

LAYERS = LayersSettings(clearing=ClearingSettings.none())
LIMITS = RunLimits(turns=400)
WINDOW = 73_000
"""Window in tokens; 40,000 remain after the reserve and the margin."""
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


def of_kind(events: list[Event], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def text_of(agent: Agent) -> str:
    return agent.conversation.prefix_bytes().decode()


async def test_full_context_is_summarised_by_model_and_run_continues(tmp_path: Path) -> None:
    tool = NotingTool(name="Note", act=long(8_000))
    compact = CompactionStep()
    script = working(40, SUMMARY)
    async with open_agent(script, tmp_path, tool, layers=LAYERS, window=WINDOW, compact=compact) as (agent, server):
        events = watch(agent)
        ended = await run_loop(agent, LIMITS)
        assert (ended.reason, ended.text, ended.turns) == ("completed", "done", 41)
        compacted = of_kind(events, Compacted)
        assert len(compacted) >= 2
        assert {(each.trigger, each.by) for each in compacted} == {("threshold", "summary")}
        assert all(each.tokens_after <= 30_000 <= each.tokens_before for each in compacted)
        assert not of_kind(events, CacheBroke)
        assert not of_kind(events, LayerFailed)
        assert "Went well." in text_of(agent)
        assert "<user-message>\\nthe task\\n</user-message>" in text_of(agent)
        assert {entry["status"] for entry in server.requests} == {200}


async def test_compaction_event_reports_removed_and_restored_content(tmp_path: Path) -> None:
    tool = NotingTool(name="Note", act=long(8_000))
    script = working(22, SUMMARY)
    async with open_agent(script, tmp_path, tool, layers=LAYERS, window=WINDOW, compact=CompactionStep()) as (agent, _):
        events = watch(agent)
        await run_loop(agent, LIMITS)
        [compacted] = of_kind(events, Compacted)
        assert compacted.where == str(tmp_path / "transcript.jsonl")
        assert (compacted.words, compacted.words_added) == (1, 1)
        gone = [word for word in compacted.dropped if word.startswith("/src/file_")]
        assert gone
        assert all(word not in text_of(agent) for word in gone)
        assert compacted.dropped_count >= len(compacted.dropped)
        boundary = load_transcript(tmp_path / "transcript.jsonl").boundary
        assert boundary is not None
        assert (boundary.by, boundary.parts, boundary.failures) == ("summary", ["summary", "words"], 0)
        assert compacted.passed_over == {"notes": "switched off"}
        assert boundary.left == compacted.left


async def test_resumed_agent_sends_bytes_of_compacted_one(tmp_path: Path) -> None:
    tool = NotingTool(name="Note", act=long(8_000))
    options: dict[str, Any] = {"layers": LAYERS, "window": WINDOW}
    async with open_agent(working(22, SUMMARY), tmp_path, tool, compact=CompactionStep(), **options) as (agent, _):
        await run_loop(agent, LIMITS)
        sent, words = agent.conversation.prefix_bytes(), list(agent.user_texts)
    async with open_agent(working(22, SUMMARY), tmp_path, tool, compact=CompactionStep(), **options) as (agent, _):
        assert agent.conversation.prefix_bytes() == sent
        assert agent.user_texts == words == ["the task"]


async def test_failed_summaries_trip_breaker_and_run_continues(tmp_path: Path) -> None:
    """The breaker stays open after a resume."""
    empty = {"purpose": "compaction", "times": "always", "text": "<summary></summary>"}
    tool = NotingTool(name="Note", act=long(8_000))
    options: dict[str, Any] = {"layers": LAYERS, "window": WINDOW}
    async with open_agent(working(60, empty), tmp_path, tool, compact=CompactionStep(), **options) as (agent, server):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        compacted = of_kind(events, Compacted)
        assert len(compacted) > 3
        assert {each.by for each in compacted} == {"rule"}
        whys = [each.passed_over["summary"] for each in compacted]
        assert whys[:4] == ["the reply has no summary in it"] * 3 + ["the last 3 summaries failed"]
        assert len(of_kind(events, LayerFailed)) == 3
        [tripped] = of_kind(events, BreakerTripped)
        assert (tripped.failures, tripped.reason) == (3, "the reply has no summary in it")
        assert sum(entry["purpose"] == "compaction" for entry in server.requests) == 3
        assert "the task" in text_of(agent)
        assert load_transcript(agent.transcript.path).boundary.failures == 3  # type: ignore[union-attr]  # it was compacted
    async with open_agent(working(99, empty), tmp_path, tool, compact=CompactionStep(), **options) as (agent, server):
        events = watch(agent)
        agent.append_message("user", [text_block("go on")])
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert of_kind(events, Compacted)
        assert not [entry for entry in server.requests if entry["purpose"] == "compaction"]


async def test_earlier_summary_survives_compaction_by_rule(tmp_path: Path) -> None:
    once = {**SUMMARY, "times": 1}
    tool = NotingTool(name="Note", act=long(8_000))
    async with open_agent(
        working(40, once), tmp_path, tool, layers=LAYERS, window=WINDOW, compact=CompactionStep()
    ) as (agent, _):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert [each.by for each in of_kind(events, Compacted)][:2] == ["summary", "rule"]
        assert "Went well.\\n\\n(" in text_of(agent)


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
    tool = NotingTool(name="Note", act=long(8_000))
    script = working(22, {"purpose": "compaction", "times": "always", **reply})
    async with open_agent(script, tmp_path, tool, layers=LAYERS, window=WINDOW, compact=CompactionStep()) as (agent, _):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        [failed] = of_kind(events, LayerFailed)
        assert (failed.layer, reason in failed.reason) == ("compaction", True), failed.reason
        [compacted] = of_kind(events, Compacted)
        assert compacted.by == "rule"


async def test_summary_without_tags_is_used_unchanged(tmp_path: Path) -> None:
    tool = NotingTool(name="Note", act=long(8_000))
    script = working(22, {"purpose": "compaction", "text": "All that happened was good."})
    async with open_agent(script, tmp_path, tool, layers=LAYERS, window=WINDOW, compact=CompactionStep()) as (agent, _):
        events = watch(agent)
        await run_loop(agent, LIMITS)
        assert [each.by for each in of_kind(events, Compacted)] == ["summary"]
        assert "All that happened was good." in text_of(agent)


def noting(directory: Path) -> dict[str, Any]:
    """Return a reply of the notes helper."""
    hint = "_What is being done at this moment, what is still open, and what comes next._"
    edit = {
        "file_path": str(directory / "notes.md"),
        "old_string": hint,
        "new_string": f"{hint}\nNoted at {{{{turn}}}}.",
    }
    return {"purpose": "notes", "times": "always", "tools": [{"Edit": edit}]}


async def test_notes_replace_summary_without_model_call(tmp_path: Path) -> None:
    async def after_the_notes(word: str) -> str:
        assert compact.notes is not None
        await compact.notes.wait_until_written()
        return long(8_000)(word)

    tools = (NotingTool(name="Note", act=after_the_notes), Edit())
    compact = CompactionStep()
    limits = NotesSettings(first=5_000, step=3_000, share=1.0)
    script = working(60, noting(tmp_path))
    async with (
        open_agent(script, tmp_path, *tools, layers=LAYERS, window=WINDOW, compact=compact) as (agent, server),
        open_notes(agent, limits) as compact.notes,
    ):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        compacted = of_kind(events, Compacted)
        assert len(compacted) >= 3
        assert {(each.by, each.cost_usd) for each in compacted} == {("notes", "0")}
        assert not of_kind(events, LayerFailed)
        assert not of_kind(events, CacheBroke)
        assert "Noted at" in text_of(agent)
        assert "the task" in text_of(agent)
        assert {entry["purpose"] for entry in server.requests} == {"turn", "notes"}
        assert {entry["status"] for entry in server.requests} == {200}


async def test_turns_not_covered_by_notes_stay(tmp_path: Path) -> None:
    """If too many turns would stay, the model is called instead."""
    tools = (NotingTool(name="Note", act=long(8_000)), Edit())
    compact = CompactionStep()
    script = working(22, noting(tmp_path), SUMMARY)
    async with (
        open_agent(script, tmp_path, *tools, layers=LAYERS, window=WINDOW, compact=compact) as (agent, _),
        open_notes(agent, NotesSettings(first=5_000, step=100_000, share=1.0)) as compact.notes,
    ):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert [type(event) for event in events if isinstance(event, NotesUpdated | Compacted)] == [
            NotesUpdated,
            Compacted,
        ]
        [compacted] = of_kind(events, Compacted)
        assert compacted.by == "summary"
        assert compacted.passed_over["notes"].startswith("the notes do not cover the last ")
        assert "the context has grown too little" in compacted.passed_over["notes"]


async def test_compaction_event_gives_reason_for_missing_notes(tmp_path: Path) -> None:
    tools = (NotingTool(name="Note", act=long(8_000)), Edit())
    compact = CompactionStep()
    async with (
        open_agent(working(22, SUMMARY), tmp_path, *tools, layers=LAYERS, window=WINDOW, compact=compact) as (agent, _),
        open_notes(agent, NotesSettings(first=5_000, share=0.000_001)) as compact.notes,
    ):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        [compacted] = of_kind(events, Compacted)
        why = "there are no notes: another update would cost more than the notes' share of the cost of turns"
        assert compacted.passed_over == {"notes": why}


async def test_errors_section_of_notes_is_added_to_summary(tmp_path: Path) -> None:
    tools = (NotingTool(name="Note", act=long(8_000)), Edit())
    compact = CompactionStep(settings=CompactionSettings(by_notes=False))
    hint = "_What went wrong and how it was put right; what the user corrected; ways that lead nowhere._"
    edit = {"file_path": str(tmp_path / "notes.md"), "old_string": hint, "new_string": f"{hint}\nNever touch foo_bar."}
    script = working(22, {"purpose": "notes", "times": "always", "tools": [{"Edit": edit}]}, SUMMARY)
    async with (
        open_agent(script, tmp_path, *tools, layers=LAYERS, window=WINDOW, compact=compact) as (agent, _),
        open_notes(agent, NotesSettings(first=5_000, step=100_000, share=1.0)) as compact.notes,
    ):
        await run_loop(agent, LIMITS)
        assert "Never touch foo_bar." in text_of(agent)
        assert "Went well." in text_of(agent)


async def test_prompt_rejected_as_too_long_is_compacted_and_retried(tmp_path: Path) -> None:
    """The estimate was too low and the summary request is too long as well, so the oldest rounds are omitted."""
    models = load_models(small_window(tmp_path, 60_000))
    tool = NotingTool(name="Note", act=dense(9_000))
    script = working(30, SUMMARY)
    async with open_agent(
        script, tmp_path, tool, layers=LAYERS, window=400_000, compact=CompactionStep(), models=models
    ) as (agent, server):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        compacted = of_kind(events, Compacted)
        assert compacted
        assert {(each.trigger, each.by) for each in compacted} == {("overflow", "summary")}
        refused = [entry for entry in server.requests if entry["status"] == 400]
        assert refused
        assert "the task" in text_of(agent)


async def test_message_longer_than_window_is_stored_in_file(tmp_path: Path) -> None:
    words = " ".join(f"word{n}" for n in range(40_000))
    async with open_agent(
        working(1, SUMMARY), tmp_path, NotingTool(name="Note"), layers=LAYERS, window=WINDOW, compact=CompactionStep()
    ) as (agent, _):
        await run_loop(agent, LIMITS)
        agent.append_message("user", [text_block(words)], UserTextRecord(texts=[words]))
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done again"
        [compacted] = of_kind(events, Compacted)
        assert compacted.tokens_after < 40_000
        [stored] = [path for path in (tmp_path / "tool-results").iterdir() if path.read_text() == words]
        assert str(stored) in text_of(agent)
        assert "word999999" not in text_of(agent)


async def test_summary_is_made_in_parts_when_conversation_is_too_long(tmp_path: Path) -> None:
    models = load_models(small_window(tmp_path, 60_000))
    tool = NotingTool(name="Note", act=long(130_000), result_cap=None)
    async with open_agent(
        working(3, SUMMARY), tmp_path, tool, layers=LAYERS, window=100_000, compact=CompactionStep(), models=models
    ) as (agent, server):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert {(each.trigger, each.by) for each in of_kind(events, Compacted)} == {("overflow", "chunks")}
        parts = [entry for entry in server.requests if entry["purpose"] == "compaction" and entry["status"] == 200]
        assert len(parts) > 1


@pytest.mark.parametrize("side", ["from", "up_to"])
async def test_selected_part_is_compacted_on_request(side: Side, tmp_path: Path) -> None:
    compact = CompactionStep()
    tool = NotingTool(name="Note", act=long(12_000))
    async with open_agent(working(8, SUMMARY), tmp_path, tool, layers=LAYERS, compact=compact) as (agent, server):
        assert (await run_loop(agent, LIMITS)).text == "done"
        before = agent.conversation.messages
        told = await compact.compact(agent, "manual", Pivot(side=side, message=7))
        assert told is not None
        after = agent.conversation.messages
        if side == "from":
            assert after[:5] == before[:5]
            assert len(after) == 6
            assert told.left == len(before) - 5
        else:
            assert len(after) == 1 + len(before) - 5
            assert [m.role for m in after[1:]] == [m.role for m in before[5:]]
            assert told.left == 5
        agent.append_message("user", [text_block("and now?")])
        assert (await run_loop(agent, LIMITS)).text == "done again"
        last = server.requests[-1]
        assert last["status"] == 200
        if side == "from":
            assert last["usage"]["cache_read_input_tokens"] > 6_000

"""Images and PDF pages in a long conversation, which the layers remove before every request fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.errors import ModelRefusedRequest
from coterie.agents.events.layer_events import CacheBroke, Compacted, LayerFailed, ResultsCleared
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.api_errors import PromptTooLong
from coterie.agents.loop.model.catalog import ModelTable, load_models
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.tools.files.read import Read
from coterie.memory.compaction.result_clearing import MEDIA_PLACEHOLDER, PLACEHOLDER
from coterie.memory.layer_settings import ClearingSettings, LayersSettings
from tests.agents.scripted_agent import of_type, open_agent, watch
from tests.agents.tools.files.notebook_files import png
from tests.agents.tools.files.pdf_files import pdf

ALONE = LayersSettings(clearing=ClearingSettings(by_time=False, by_cache=False, by_api=False))
LIMITS = RunLimits(turns=60)
SMALL = "claude-haiku-4-5"
SUMMARY = {"purpose": "compaction", "times": "always", "text": "<summary>Read it all.</summary>"}


def reading(*rounds: list[dict[str, Any]], thinks: bool = False) -> str:
    thought = {"thinking": "hm"} if thinks else {}
    replies = [{**thought, "tools": [{"Read": call} for call in calls]} for calls in rounds]
    return json.dumps({"default": [SUMMARY, *replies, {"text": "done"}]})


def pages(first: int, last: int) -> dict[str, Any]:
    return {"file_path": "a.pdf", "pages": f"{first}-{last}"}


def few_pages(directory: Path) -> ModelTable:
    """Return a model table with a small limit of 100 pages and a window into which they fit."""
    path = directory / "models.toml"
    path.write_text('[models."claude-opus-5-5"]\nwindow = 400_000\n')
    return load_models(path)


def kinds(agent: Agent) -> list[list[str]]:
    """Return the types of the parts of each result."""
    found = (json.loads(segment.data) for segment in agent.conversation.segments if segment.block_type == "tool_result")
    return [[part["type"] for part in block["content"]] for block in found]


@pytest.mark.parametrize("at_once", [True, False])
async def test_too_many_pages_are_removed_and_run_continues(tmp_path: Path, at_once: bool) -> None:
    """The agent reads 120 pages of a 200-page document; the newest 20 stay."""
    (tmp_path / "a.pdf").write_bytes(pdf(200))
    calls = [pages(n, n + 19) for n in range(1, 121, 20)]
    script = reading(calls) if at_once else reading(*([call] for call in calls))
    async with open_agent(script, tmp_path, Read(), layers=ALONE, window=1_000_000, models=few_pages(tmp_path)) as (
        agent,
        server,
    ):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        [left] = of_type(events, ResultsCleared)
        assert (left.mechanism, left.results) == ("size", 5)
        assert left.tokens_after < left.tokens_before
        assert kinds(agent) == [["text", "text"]] * 5 + [["text", "document"]]
        assert MEDIA_PLACEHOLDER in agent.conversation.prefix_bytes().decode()
        assert [entry["status"] for entry in server.requests].count(400) == 1
        assert not of_type(events, CacheBroke)
        sent = agent.conversation.prefix_bytes()
    loaded = load_transcript(tmp_path / "transcript.jsonl").conversation
    assert loaded is not None
    assert loaded.prefix_bytes() == sent


async def test_thinking_model_continues_without_pages(tmp_path: Path) -> None:
    """Thinking of claude-opus-5-5 is valid only behind the same prefix."""
    (tmp_path / "a.pdf").write_bytes(pdf(200))
    script = reading(*([pages(n, n + 19)] for n in range(1, 121, 20)), thinks=True)
    async with open_agent(script, tmp_path, Read(), layers=ALONE, window=1_000_000, models=few_pages(tmp_path)) as (
        agent,
        server,
    ):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        [left] = of_type(events, ResultsCleared)
        assert (left.mechanism, left.results) == ("size", 5)
        assert [entry["status"] for entry in server.requests].count(400) == 1


async def test_only_media_errors_are_recognised_as_media_overflow() -> None:
    too_many = ModelRefusedRequest("A maximum of 100 PDF pages may be provided.", status=400)
    too_large = ModelRefusedRequest("Request exceeds the maximum size", status=413)
    too_long = ModelRefusedRequest("prompt is too long: 200251 tokens > 200000 maximum", status=400)
    assert PromptTooLong.read(too_many) == PromptTooLong.read(too_large) == PromptTooLong(is_media=True)
    assert PromptTooLong.read(too_long) == PromptTooLong(actual=200_251, most=200_000)
    assert PromptTooLong.read(ModelRefusedRequest("messages: bad", status=400)) is None


async def test_pages_that_fill_window_are_removed_by_compaction(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(60))
    (tmp_path / "a.png").write_bytes(png())
    rounds = [[pages(n, n + 9), {"file_path": "a.png"}] for n in range(1, 60, 10)]
    compact = CompactionStep()
    async with open_agent(
        reading(*rounds), tmp_path, Read(), layers=ALONE, model=SMALL, window=120_000, compact=compact
    ) as (agent, server):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        compacted = of_type(events, Compacted)
        assert {(each.trigger, each.by) for each in compacted} == {("threshold", "summary")}
        assert all(each.tokens_after < each.tokens_before for each in compacted)
        assert not of_type(events, LayerFailed)
        assert {entry["status"] for entry in server.requests} == {200}
        assert "Read it all." in agent.conversation.prefix_bytes().decode()
        assert len(kinds(agent)) < 2 * len(rounds)


async def test_old_pages_are_cleared_by_time_like_any_result(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(20))
    rounds = [[pages(n, n)] for n in range(1, 9)]
    layers = LayersSettings(clearing=ClearingSettings(by_api=False, by_cache=False))
    async with open_agent(reading(*rounds), tmp_path, Read(), layers=layers, model=SMALL) as (agent, server):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        server.clock.advance(301)
        for step in agent.pipeline.before_call:
            await step.before_call(agent)
        [cleared] = of_type(events, ResultsCleared)
        assert (cleared.mechanism, cleared.results) == ("time", 3)
        assert cleared.tokens_before - cleared.tokens_after > 3 * 4_000
        assert kinds(agent) == [["text"]] * 3 + [["text", "document"]] * 5
        assert agent.conversation.prefix_bytes().decode().count(PLACEHOLDER) == 3

"""Layers inside open tool loops of a thinking model, with the strict embedded server."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.errors import ModelRefusedRequest
from coterie.agents.events.layer_events import (
    CacheBroke,
    Compacted,
    LayerFailed,
    ResultsCleared,
    ResultsStored,
    WindowFilling,
)
from coterie.agents.layers.layer2_clearing import api_trigger
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.cache_markers import CacheTtls
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.token_estimate import Thresholds
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.api_errors import PromptTooLong
from coterie.agents.loop.model.catalog import ModelTable, load_models
from coterie.agents.loop.model.reply import Reply
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.tools.files.read import Read
from coterie.agents.tools.tool import tool_definition
from coterie.clock import Clock
from coterie.files import file_faults
from coterie.memory.compaction.result_clearing import MEDIA_PLACEHOLDER, PLACEHOLDER
from coterie.memory.layer_settings import ClearingSettings, LayersSettings
from tests.agents.disk_faults import FaultAt
from tests.agents.layers.test_layer4_compaction import long, working
from tests.agents.scripted_agent import NotingTool, ObservedAgent, of_type, open_agent, watch
from tests.agents.tools.files.notebook_files import png
from tests.agents.tools.files.pdf_files import pdf
from tests.embedded_server import Served

ALL = LayersSettings()
ONLY_TIME = LayersSettings(clearing=ClearingSettings(by_api=False, by_cache=False))
ONLY_API = LayersSettings(clearing=ClearingSettings(by_time=False, by_cache=False))
LIMITS = RunLimits(turns=60)


def contents(agent: Agent) -> list[str]:
    """Return the tool results in the conversation."""
    found = (json.loads(segment.data) for segment in agent.conversation.segments if segment.block_type == "tool_result")
    return [block["content"][0]["text"] for block in found]


def slow_at(turn: int, served: list[Served], seconds: float = 301) -> Callable[[str], str]:
    """Create a tool that takes five minutes in one turn and returns long results."""

    def act(word: str) -> str:
        if word == str(turn):
            served[0].clock.advance(seconds)
        return long(2_000)(word)

    return act


@asynccontextmanager
async def open_work(
    directory: Path,
    script: str,
    act: Callable[[str], str] = str,
    *,
    slow_turn: int | None = None,
    layers: LayersSettings = ALL,
    **options: Any,
) -> AsyncIterator[ObservedAgent]:
    """Open an agent whose tool returns what *act* says, or takes five minutes in *slow_turn*."""
    begun: list[Served] = []
    tool = NotingTool(name="Note", act=act if slow_turn is None else slow_at(slow_turn, begun))
    async with open_agent(script, directory, tool, layers=layers, **options) as (agent, served):
        begun.append(served)
        yield ObservedAgent(agent=agent, events=watch(agent), served=served)


async def test_long_result_is_stored_also_after_resume(tmp_path: Path) -> None:
    async with open_work(tmp_path, working(1), long(60_000)) as work:
        await work.run()
        [stored] = work.of_type(ResultsStored)
        path = tmp_path / "tool-results" / Path(stored.paths[0]).name
        assert stored.paths == [str(path)]
        assert path.read_text() == long(60_000)("0")
        assert stored.characters_after < 2_500 < stored.characters_before
        [shown] = contents(work.agent)
        assert str(path) in shown
        sent = work.agent.conversation.prefix_bytes()
    path.unlink()
    async with open_work(tmp_path, working(1)) as work:
        assert work.agent.conversation.prefix_bytes() == sent


async def test_long_result_stays_when_disk_fails(tmp_path: Path) -> None:
    async with open_work(tmp_path, working(1), long(60_000)) as work:
        with file_faults(FaultAt("write", lambda path: path.parent.name == "tool-results")):
            await work.run()
        [failed] = work.of_type(LayerFailed)
        assert (failed.layer, "No space" in failed.reason) == ("tool results", True)
        assert contents(work.agent) == [long(60_000)("0")]


async def test_clearing_by_time_works_inside_thinking_tool_loop(tmp_path: Path) -> None:
    async with open_work(tmp_path, working(12), slow_turn=8, layers=ONLY_TIME) as work:
        await work.run()
        [cleared] = work.of_type(ResultsCleared)
        assert (cleared.mechanism, cleared.results) == ("time", 4)
        assert cleared.tokens_after < cleared.tokens_before
        assert cleared.where == str(tmp_path / "transcript.jsonl")
        assert work.agent.conversation.epoch == 1
        assert contents(work.agent)[:4] == [PLACEHOLDER] * 4
        assert not work.of_type(CacheBroke)
        # The round of turn 8 has thinking, so it is rewritten as text; later rounds are unchanged.
        assert "<earlier-call>" in work.agent.conversation.prefix_bytes().decode()
        assert work.statuses == [200] * 13


async def test_clearing_by_time_works_when_user_returns(tmp_path: Path) -> None:
    """The age of the last reply is known after a resume."""
    async with open_work(tmp_path, working(8), long(2_000), layers=ONLY_TIME) as work:
        await work.run()
    async with open_work(tmp_path, working(8), layers=ONLY_TIME) as work:
        work.served.clock.advance(301)
        await work.run("and now?")
        assert [(e.mechanism, e.results) for e in work.of_type(ResultsCleared)] == [("time", 3)]
        assert b"<earlier-call>" not in work.agent.conversation.prefix_bytes()


async def test_cache_of_an_hour_is_not_cold_after_five_minutes(tmp_path: Path) -> None:
    async with open_work(tmp_path, working(12), slow_turn=8, layers=ONLY_TIME) as work:
        work.agent.ttl = CacheTtls(system="1h", context="1h", previous="1h", last="1h")
        await work.run()
        assert not work.of_type(ResultsCleared)
        assert not work.of_type(CacheBroke)


async def test_clearing_by_cache_keeps_bytes_and_cache(tmp_path: Path) -> None:
    async with open_work(tmp_path, working(30), long(3_000)) as work:
        await work.run()
        assert [(event.mechanism, event.results) for event in work.of_type(ResultsCleared)] == [("cache", 6)] * 4
        assert work.agent.conversation.epoch == 0
        assert not work.of_type(CacheBroke)
        edits = [s for s in work.agent.conversation.segments if s.block_type == "cache_edits"]
        assert len(edits) == 4
        prompts = [sum(entry["usage"][key] for key in PROMPT) for entry in work.served.requests]
        assert max(prompts) < 20_000
        assert all(entry["usage"]["input_tokens"] < 1_200 for entry in work.served.requests[1:])


PROMPT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


async def test_clearing_by_api_breaks_cache_only_once(tmp_path: Path) -> None:
    async with open_work(tmp_path, working(30), long(4_000), layers=ONLY_API, window=48_000) as work:
        await work.run()
        assert {event.mechanism for event in work.of_type(ResultsCleared)} == {"api"}
        # There is no request after the last reply that could omit the results cleared in it.
        assert work.agent.conversation.epoch == len(work.of_type(ResultsCleared)) - 1 > 0
        reads = [entry["usage"]["cache_read_input_tokens"] for entry in work.served.requests[1:]]
        assert sum(read < 1_000 for read in reads) <= 2 * len(work.of_type(ResultsCleared))
        assert not work.of_type(CacheBroke)
        assert work.statuses == [200] * 31


@pytest.mark.parametrize(("window", "trigger"), [(200_000, 147_000), (100_000, 58_625), (50_000, 14_875)])
def test_api_clears_small_window_only_when_nearly_full(window: int, trigger: int) -> None:
    assert api_trigger(Thresholds.for_window(window, max_output=64_000)) == trigger


async def test_cache_edit_reduces_token_count_immediately(tmp_path: Path) -> None:
    """The reply reports the same count, except for the few tokens around each block."""
    counted: list[tuple[int, int]] = []

    class Counting:
        tokens = 0

        async def before_call(self, agent: Agent) -> None:
            self.tokens = agent.meter.tokens(agent.conversation)

        def on_reply(self, _agent: Agent, reply: Reply) -> None:
            counted.append((self.tokens, reply.usage.prompt))

    counting = Counting()
    async with open_work(tmp_path, working(30), long(3_000)) as work:
        pipeline = work.agent.pipeline
        work.agent.pipeline = attrs.evolve(
            pipeline, before_call=(*pipeline.before_call, counting), reply=(counting, *pipeline.reply)
        )
        await work.run()
    assert len(counted) == 31
    assert max(abs(before - after) for before, after in counted[1:]) < 500


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-4-5", "claude-haiku-5-5"])
async def test_every_model_accepts_cleared_conversation(tmp_path: Path, model: str) -> None:
    """The run is paused and resumed after the clearing."""
    async with open_work(tmp_path, working(18), slow_turn=14, model=model) as work:
        assert (await run_loop(work.agent, RunLimits(turns=16))).reason == "max_turns"
        assert {event.mechanism for event in work.of_type(ResultsCleared)} == {"cache", "time"}
    async with open_work(tmp_path, working(18), model=model) as work:
        await work.run()
        assert not work.of_type(CacheBroke)


def change_tool(agent: Agent, _served: Served) -> None:
    tool = tool_definition(NotingTool(name="Note", description="Takes another note."))
    changed = Conversation.begin(agent.conversation.header, tools=[tool])
    changed.rewrite(agent.conversation.messages)
    agent.conversation = changed


def change_messages(agent: Agent, _served: Served) -> None:
    agent.conversation.rewrite([("user", [text_block("another beginning")])])


def change_effort(agent: Agent, _served: Served) -> None:
    agent.conversation.rewrite(agent.conversation.messages, attrs.evolve(agent.conversation.header, effort="low"))


def change_effort_as_announced(agent: Agent, served: Served) -> None:
    change_effort(agent, served)
    agent.announced.append("by the test")


def let_time_pass_at_server(agent: Agent, served: Served) -> None:
    agent.clock = Clock()
    served.clock.advance(400)


Change = Callable[[Agent, Served], object]


@pytest.mark.parametrize(
    ("change", "cause", "detail"),
    [
        (change_effort, "parameters", "effort was None and is 'low'"),
        (change_effort_as_announced, None, ""),
        (change_tool, "tools", "the tool Note has changed"),
        (change_messages, "messages", ""),
        (lambda _, served: served.clock.advance(400), "expired", "400 s ago"),
        (let_time_pass_at_server, "server", ""),
    ],
    ids=["effort", "announced", "tool", "messages", "time", "time at the server"],
)
async def test_unannounced_cache_miss_is_event_with_its_cause(
    tmp_path: Path, change: Change, cause: str | None, detail: str
) -> None:
    script = working(2, thinks=change is not change_tool)
    async with open_work(tmp_path, script, long(40_000), layers=ONLY_TIME) as work:
        await work.run()
        work.events.clear()
        change(work.agent, work.served)
        await work.run("go on")
        assert [event.cause for event in work.of_type(CacheBroke)] == ([] if cause is None else [cause])
        assert all(detail in event.detail and event.read_now < event.read_before for event in work.of_type(CacheBroke))


async def test_filling_window_is_event_and_full_window_ends_run(tmp_path: Path) -> None:
    async with open_work(tmp_path, working(40), long(8_000), layers=ONLY_TIME, window=70_000) as work:
        assert (await run_loop(work.agent, LIMITS)).reason == "blocked"
        filling = work.of_type(WindowFilling)
        assert [event.level for event in filling] == ["warn", "compact", "block"]
        assert all(event.tokens >= event.threshold for event in filling)


ALONE = LayersSettings(clearing=ClearingSettings(by_time=False, by_cache=False, by_api=False))
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


@pytest.mark.parametrize(("at_once", "thinks"), [(True, False), (False, True)])
async def test_too_many_pages_are_removed_and_run_continues(tmp_path: Path, *, at_once: bool, thinks: bool) -> None:
    """The agent reads 120 pages of a 200-page document; the newest 20 stay.

    Thinking of claude-opus-5-5 is valid only behind the same prefix.
    """
    (tmp_path / "a.pdf").write_bytes(pdf(200))
    calls = [pages(n, n + 19) for n in range(1, 121, 20)]
    script = reading(calls) if at_once else reading(*([call] for call in calls), thinks=thinks)
    async with open_agent(script, tmp_path, Read(), layers=ALONE, window=1_000_000, models=few_pages(tmp_path)) as (
        agent,
        server,
    ):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        [left] = of_type(events, ResultsCleared)
        assert (left.mechanism, left.results) == ("size", 5)
        assert left.tokens_after < left.tokens_before
        # The last round is rewritten as text if it has thinking.
        assert kinds(agent) == [["text", "text"]] * 5 + ([] if thinks else [["text", "document"]])
        assert b'"type":"document"' in agent.conversation.prefix_bytes()
        assert MEDIA_PLACEHOLDER in agent.conversation.prefix_bytes().decode()
        assert [entry["status"] for entry in server.requests].count(400) == 1
        assert not of_type(events, CacheBroke)
        sent = agent.conversation.prefix_bytes()
    loaded = load_transcript(tmp_path / "transcript.jsonl").conversation
    assert loaded is not None
    assert loaded.prefix_bytes() == sent


def test_only_media_errors_are_recognised_as_media_overflow() -> None:
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

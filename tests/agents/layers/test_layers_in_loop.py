"""Layers inside open tool loops of a thinking model, with the strict embedded server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import CacheBroke, LayerFailed, ResultsCleared, ResultsStored, WindowFilling
from coterie.agents.layers.layer2_clearing import api_trigger
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.cache_markers import CacheTtls
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.token_estimate import Thresholds
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.reply import Reply
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.tools.tool import tool_definition
from coterie.clock import Clock
from coterie.files import SeededFaults, file_faults
from coterie.memory.compaction.result_clearing import PLACEHOLDER
from coterie.memory.layer_settings import ClearingSettings, LayersSettings
from tests.agents.scripted_agent import NotingTool, open_agent, watch
from tests.embedded_server import Served

ALL = LayersSettings()
ONLY_TIME = LayersSettings(clearing=ClearingSettings(by_api=False, by_cache=False))
ONLY_API = LayersSettings(clearing=ClearingSettings(by_time=False, by_cache=False))
LIMITS = RunLimits(turns=60)


def working(turns: int, *, thinks: bool = True) -> str:
    """Return a script with *count* thinking tool calls, then an answer."""
    thought = {"thinking": "what next"} if thinks else {}
    replies = [{**thought, "text": f"step {n}", "tools": [{"Note": {"text": str(n)}}]} for n in range(turns)]
    return json.dumps({"default": [*replies, {"text": "done"}, {"text": "done again"}]})


def long(size: int) -> Callable[[str], str]:
    """Return a tool result of about *size* characters, different for each call."""
    return lambda word: f"result {word}: " + "lorem ipsum " * (size // 12)


def of_kind(events: list[Event], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def contents(agent: Agent) -> list[str]:
    """Return the tool results in the conversation."""
    found = (json.loads(segment.data) for segment in agent.conversation.segments if segment.block_type == "tool_result")
    return [block["content"][0]["text"] for block in found]


async def test_long_result_is_stored_also_after_resume(tmp_path: Path) -> None:
    async with open_agent(working(1), tmp_path, NotingTool(name="Note", act=long(60_000)), layers=ALL) as (agent, _):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        [stored] = of_kind(events, ResultsStored)
        path = tmp_path / "tool-results" / Path(stored.paths[0]).name
        assert stored.paths == [str(path)]
        assert path.read_text() == long(60_000)("0")
        assert stored.characters_after < 2_500 < stored.characters_before
        [shown] = contents(agent)
        assert str(path) in shown
        sent = agent.conversation.prefix_bytes()
    path.unlink()
    async with open_agent(working(1), tmp_path, NotingTool(name="Note"), layers=ALL) as (agent, _):
        assert agent.conversation.prefix_bytes() == sent


async def test_long_result_stays_when_disk_fails(tmp_path: Path) -> None:
    class OnlyResults(SeededFaults):
        def before(self, operation: Any, path: Path, size: int) -> int:
            return super().before(operation, path, size) if path.parent.name == "tool-results" else size

    async with open_agent(working(1), tmp_path, NotingTool(name="Note", act=long(60_000)), layers=ALL) as (agent, _):
        events = watch(agent)
        with file_faults(OnlyResults(seed=1, full=1.0)):
            assert (await run_loop(agent, LIMITS)).text == "done"
        [failed] = of_kind(events, LayerFailed)
        assert (failed.layer, "No space" in failed.reason) == ("tool results", True)
        assert contents(agent) == [long(60_000)("0")]


def slow_at(turn: int, served: list[Served], seconds: float = 301) -> Callable[[str], str]:
    """Create a tool that takes five minutes in one turn and returns long results."""

    def act(word: str) -> str:
        if word == str(turn):
            served[0].clock.advance(seconds)
        return long(2_000)(word)

    return act


async def test_clearing_by_time_works_inside_thinking_tool_loop(tmp_path: Path) -> None:
    served: list[Served] = []
    tool = NotingTool(name="Note", act=slow_at(8, served))
    async with open_agent(working(12), tmp_path, tool, layers=ONLY_TIME) as (agent, server):
        served.append(server)
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        [cleared] = of_kind(events, ResultsCleared)
        assert (cleared.mechanism, cleared.results) == ("time", 4)
        assert cleared.tokens_after < cleared.tokens_before
        assert cleared.where == str(tmp_path / "transcript.jsonl")
        assert agent.conversation.epoch == 1
        assert contents(agent)[:4] == [PLACEHOLDER] * 4
        assert not of_kind(events, CacheBroke)
        # The round of turn 8 has thinking, so it is rewritten as text; later rounds are unchanged.
        assert "<earlier-call>" in agent.conversation.prefix_bytes().decode()
        assert [entry["status"] for entry in server.requests] == [200] * 13


async def test_clearing_by_time_works_when_user_returns(tmp_path: Path) -> None:
    async with open_agent(working(8), tmp_path, NotingTool(name="Note", act=long(2_000)), layers=ONLY_TIME) as (
        agent,
        served,
    ):
        assert (await run_loop(agent, LIMITS)).text == "done"
        served.clock.advance(301)
        agent.append_message("user", [text_block("and now?")])
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done again"
        assert [(e.mechanism, e.results) for e in of_kind(events, ResultsCleared)] == [("time", 3)]
        assert b"<earlier-call>" not in agent.conversation.prefix_bytes()


async def test_clearing_by_time_uses_age_of_last_reply_after_resume(tmp_path: Path) -> None:
    async with open_agent(working(8), tmp_path, NotingTool(name="Note", act=long(2_000)), layers=ONLY_TIME) as (
        agent,
        _,
    ):
        await run_loop(agent, LIMITS)
    async with open_agent(working(8), tmp_path, NotingTool(name="Note"), layers=ONLY_TIME) as (agent, served):
        served.clock.advance(301)
        agent.append_message("user", [text_block("and now?")])
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done again"
        assert len(of_kind(events, ResultsCleared)) == 1


async def test_cache_of_an_hour_is_not_cold_after_five_minutes(tmp_path: Path) -> None:
    served: list[Served] = []
    tool = NotingTool(name="Note", act=slow_at(8, served))
    async with open_agent(working(12), tmp_path, tool, layers=ONLY_TIME) as (agent, server):
        served.append(server)
        agent.ttl = CacheTtls(system="1h", context="1h", previous="1h", last="1h")
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert not of_kind(events, ResultsCleared)
        assert not of_kind(events, CacheBroke)


async def test_clearing_by_cache_keeps_bytes_and_cache(tmp_path: Path) -> None:
    async with open_agent(working(30), tmp_path, NotingTool(name="Note", act=long(3_000)), layers=ALL) as (
        agent,
        served,
    ):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        cleared = of_kind(events, ResultsCleared)
        assert {event.mechanism for event in cleared} == {"cache"}
        assert [event.results for event in cleared] == [6] * 4
        assert agent.conversation.epoch == 0
        assert not of_kind(events, CacheBroke)
        edits = [s for s in agent.conversation.segments if s.block_type == "cache_edits"]
        assert len(edits) == 4
        prompts = [sum(entry["usage"][key] for key in PROMPT) for entry in served.requests]
        assert max(prompts) < 20_000
        assert all(entry["usage"]["input_tokens"] < 1_200 for entry in served.requests[1:])


PROMPT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


async def test_clearing_by_api_breaks_cache_only_once(tmp_path: Path) -> None:
    async with open_agent(
        working(30), tmp_path, NotingTool(name="Note", act=long(4_000)), layers=ONLY_API, window=48_000
    ) as (agent, served):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        cleared = of_kind(events, ResultsCleared)
        assert {event.mechanism for event in cleared} == {"api"}
        # There is no request after the last reply that could omit the results cleared in it.
        assert agent.conversation.epoch == len(cleared) - 1 > 0
        assert sum(entry["usage"]["cache_read_input_tokens"] < 1_000 for entry in served.requests[1:]) <= 2 * len(
            cleared
        )
        assert not of_kind(events, CacheBroke)
        assert [entry["status"] for entry in served.requests] == [200] * 31


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
    async with open_agent(working(30), tmp_path, NotingTool(name="Note", act=long(3_000)), layers=ALL) as (agent, _):
        pipeline = agent.pipeline
        agent.pipeline = attrs.evolve(
            pipeline, before_call=(*pipeline.before_call, counting), reply=(counting, *pipeline.reply)
        )
        await run_loop(agent, LIMITS)
    assert len(counted) == 31
    assert max(abs(before - after) for before, after in counted[1:]) < 500


async def test_all_mechanisms_pass_strict_server_after_pause_and_resume(tmp_path: Path) -> None:
    served: list[Served] = []
    tool = NotingTool(name="Note", act=slow_at(14, served))
    async with open_agent(working(30), tmp_path, tool, layers=ALL, window=70_000) as (agent, server):
        served.append(server)
        events = watch(agent)
        assert (await run_loop(agent, RunLimits(turns=16))).reason == "max_turns"
        assert {event.mechanism for event in of_kind(events, ResultsCleared)} == {"cache", "time"}
    served.clear()
    async with open_agent(working(30), tmp_path, tool, layers=ALL, window=70_000) as (agent, server):
        served.append(server)
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert not of_kind(events, CacheBroke)


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-4-5", "claude-haiku-5-5"])
async def test_every_model_accepts_cleared_conversation(tmp_path: Path, model: str) -> None:
    served: list[Served] = []
    tool = NotingTool(name="Note", act=slow_at(14, served))
    async with open_agent(working(18), tmp_path, tool, layers=ALL, model=model) as (agent, server):
        served.append(server)
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert {event.mechanism for event in of_kind(events, ResultsCleared)} == {"cache", "time"}


async def broken(tmp_path: Path, change: Callable[[Agent, Served], None], *, thinks: bool = True) -> list[CacheBroke]:
    """Return the events if *change* happens between two turns of a long conversation."""
    async with open_agent(
        working(2, thinks=thinks), tmp_path, NotingTool(name="Note", act=long(40_000)), layers=ONLY_TIME
    ) as (
        agent,
        served,
    ):
        await run_loop(agent, LIMITS)
        agent.append_message("user", [text_block("go on")])
        change(agent, served)
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done again"
        return of_kind(events, CacheBroke)


async def test_cache_miss_event_names_changed_parameter(tmp_path: Path) -> None:
    [event] = await broken(tmp_path, lambda agent, _: agent.conversation.evolve_header(effort="low"))
    assert event.cause == "parameters"
    assert event.detail == "effort was None and is 'low'"
    assert event.read_now < event.read_before


async def test_cache_miss_event_names_changed_tool(tmp_path: Path) -> None:
    def change(agent: Agent, _served: Served) -> None:
        tool = tool_definition(NotingTool(name="Note", description="Takes another note."))
        changed = Conversation.begin(agent.conversation.header, tools=[tool])
        changed.rewrite(agent.conversation.messages)
        agent.conversation = changed

    [event] = await broken(tmp_path, change, thinks=False)
    assert (event.cause, event.detail) == ("tools", "the tool Note has changed")


async def test_cache_miss_event_names_elapsed_time(tmp_path: Path) -> None:
    [event] = await broken(tmp_path, lambda _, served: served.clock.advance(400))
    assert event.cause == "expired"
    assert "400 s ago" in event.detail


async def test_cache_miss_event_names_changed_messages(tmp_path: Path) -> None:
    def change(agent: Agent, _served: Served) -> None:
        agent.conversation.rewrite([("user", [text_block("another beginning")])])

    [event] = await broken(tmp_path, change)
    assert event.cause == "messages"


async def test_cache_miss_without_change_is_attributed_to_server(tmp_path: Path) -> None:
    def change(agent: Agent, served: Served) -> None:
        agent.clock = Clock()
        served.clock.advance(400)  # for the agent no time has passed

    [event] = await broken(tmp_path, change)
    assert event.cause == "server"


async def test_announced_cache_miss_is_no_event(tmp_path: Path) -> None:
    def change(agent: Agent, _served: Served) -> None:
        agent.conversation.evolve_header(effort="low")
        agent.announced.append("by the test")

    assert await broken(tmp_path, change) == []


async def test_filling_window_is_event_and_full_window_ends_run(tmp_path: Path) -> None:
    async with open_agent(
        working(40),
        tmp_path,
        NotingTool(name="Note", act=long(8_000)),
        layers=LayersSettings(clearing=ClearingSettings(by_api=False, by_cache=False)),
        window=70_000,
    ) as (agent, _):
        events = watch(agent)
        assert (await run_loop(agent, LIMITS)).reason == "blocked"
        levels = [event.level for event in of_kind(events, WindowFilling)]
        assert levels == ["warn", "compact", "block"]
        assert all(event.tokens >= event.threshold for event in of_kind(events, WindowFilling))

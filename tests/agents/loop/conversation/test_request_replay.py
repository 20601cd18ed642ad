"""Replay of transcripts: each request as the server received it, and the origin of each part."""

from pathlib import Path
from typing import Any

import pytest

from coterie.agents.errors import TranscriptCorrupt
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.cache_markers import CacheTtls
from coterie.agents.loop.conversation.replay import ReplayedTurn, replay_turns
from coterie.agents.loop.conversation.transcript_records import UserTextRecord
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.run_result import RunLimits
from coterie.memory.layer_settings import ClearingSettings, LayersSettings
from coterie.scenarios.api_server.request.api_request import parse_caller
from tests.agents.layers.test_layer4_compaction import SUMMARY, long, working
from tests.agents.layers.test_layers_in_loop import slow_at
from tests.agents.scripted_agent import NotingTool, open_agent
from tests.embedded_server import Served

HOUR = CacheTtls(system="1h", context="1h", previous="1h", last="5m")


def turns(directory: Path) -> list[ReplayedTurn]:
    return list(replay_turns(directory / "transcript.jsonl"))


def check_replayed(directory: Path, *servers: Served) -> list[ReplayedTurn]:
    """Check that each request of a turn is replayed as a server received it, and return the turns."""
    received = [each for served in servers for each in served.received]
    found = turns(directory)
    bodies = [each.body for each in received if parse_caller(each.headers).purpose == "turn"]
    assert [turn.render().body for turn in found] == bodies != []
    return found


def origins(turn: ReplayedTurn) -> list[str]:
    return [f"{each.what}, {each.layer}" if each.layer else each.what for each in turn.origins]


def clearing_by(mechanism: str = "") -> LayersSettings:
    return LayersSettings(
        clearing=ClearingSettings(by_time=mechanism == "time", by_cache=mechanism == "cache", by_api=mechanism == "api")
    )


async def test_replay_restores_requests_over_rewrite_and_resume(tmp_path: Path) -> None:
    served: list[Served] = []
    tool = NotingTool(name="Note", act=slow_at(8, served))
    layers = clearing_by("time")
    async with open_agent(working(12), tmp_path, tool, layers=layers) as (agent, first):
        served.append(first)
        await run_loop(agent, RunLimits(turns=10))
    async with open_agent(working(12), tmp_path, tool, layers=layers) as (agent, second):
        served[:] = [second]
        agent.ttl = HOUR
        agent.append_message("user", [text_block("go on")], UserTextRecord(texts=["go on"]))
        await run_loop(agent, RunLimits(turns=10))
    found = check_replayed(tmp_path, first, second)
    assert found[0].conversation.epoch == 0
    assert found[-1].conversation.epoch >= 1
    assert found[-1].lifetimes == HOUR
    assert {"result, layer 2 cleared", "result, loop closed", "result", "human"} <= set(origins(found[-1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("calls", "size", "mechanism", "shown"),
    [
        (14, 1_000, "cache", {"result, layer 2 cut from cache"}),
        (14, 1_000, "api", {"result"}),
        (24, 8_000, "", {"summary, layer 4 summary", "words, restored", "said, kept"}),
        (1, 60_000, "", {"tools", "task", "thinking", "said", "call", "result, layer 1 stored"}),
    ],
    ids=["cleared by cache", "cleared by API", "compacted", "stored"],
)
async def test_replay_restores_requests_of_every_layer(
    tmp_path: Path, calls: int, size: int, mechanism: str, shown: set[str]
) -> None:
    script = working(calls, SUMMARY)
    tool, compact = NotingTool(name="Note", act=long(size)), CompactionStep()
    options: dict[str, Any] = {"layers": clearing_by(mechanism), "window": 73_000, "compact": compact}
    async with open_agent(script, tmp_path, tool, **options) as (agent, served):
        assert (await run_loop(agent, RunLimits(turns=40))).text == "done"
    last = check_replayed(tmp_path, served)[-1]
    assert shown <= set(origins(last))
    assert (last.boundary is not None) == ("said, kept" in shown)


async def test_replay_has_every_attempt_of_cut_off_turn(tmp_path: Path) -> None:
    async with open_agent("default: [{text: half, stop: max_tokens}]", tmp_path) as (agent, served):
        await run_loop(agent, RunLimits(turns=3))
    found = check_replayed(tmp_path, served)
    assert [(turn.number, turn.reply.is_taken) for turn in found] == [(1, False)] * 3 + [(1, True)]
    assert [turn.reply.max_tokens for turn in found] == [8_000, 16_000, 32_000, 64_000]
    path = tmp_path / "transcript.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'\n{"kind":"reply","v":1,')
    assert [turn.number for turn in turns(tmp_path)] == [1, 1, 1, 1], "a torn end is skipped"
    path.write_bytes(whole.replace(b"half", b"hafl"))
    with pytest.raises(TranscriptCorrupt, match="checksum"):
        turns(tmp_path)

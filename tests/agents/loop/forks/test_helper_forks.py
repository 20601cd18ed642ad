"""Helpers and refresh calls read their agent's cache entries and do not change the agent."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.layers.prompt_cache.keepalive import refresh_prefix
from coterie.agents.loop.forks.helper import HelperStart, run_helper
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.tools.files.edit import Edit
from coterie.agents.tools.tool import allow_all
from tests.agents.loop.forks.fork_family import Family, code, open_family

READ: dict[str, Any] = {"thinking": "Look.", "tools": [{"Read": {"text": "a"}}]}
DONE: dict[str, Any] = {"text": "All done."}
NOTES: dict[str, Any] = {"text": "Noted.", "when": {"purpose": "notes"}, "times": "always"}


def cached(family: Family) -> int:
    usage = family.log("main")[-1]["usage"]
    return int(usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"])


async def test_helper_reads_agents_cache_and_writes_nothing(tmp_path: Path) -> None:
    async with open_family(tmp_path, [READ, DONE, NOTES], read=code) as family:
        await run_loop(family.parent, RunLimits())
        before = family.parent.conversation.prefix_hash, family.parent.conversation.marks, family.parent.turn
        reply = await run_helper(family.parent, "Write the notes.", "notes")
        (entry,) = family.log("main", "notes")
        assert reply.text == "Noted."
        assert entry["usage"]["cache_read_input_tokens"] == cached(family)
        assert entry["usage"]["cache_creation_input_tokens"] == 0
        conversation = family.parent.conversation
        assert before == (conversation.prefix_hash, conversation.marks, family.parent.turn)


async def test_helper_starts_from_open_calls_or_user_message(tmp_path: Path) -> None:
    async def spawn(family: Family) -> None:
        await run_helper(family.parent, "Write the notes.", "notes")

    script = [READ, {"thinking": "Go.", "tools": [{"Agent": {}}]}, DONE, NOTES]
    async with open_family(tmp_path, script, read=code, spawn=spawn) as family:
        await run_loop(family.parent, RunLimits(turns=1))
        assert (await run_helper(family.parent, "Write the notes.", "notes")).text == "Noted."
        assert (await run_loop(family.parent, RunLimits())).reason == "completed"
        assert [entry["status"] for entry in family.log("main", "notes")] == [200, 200]


async def test_helper_calls_are_denied_and_turns_limited(tmp_path: Path) -> None:
    asked: list[str] = []

    def read(text: str) -> str:
        asked.append(text)
        return code(text)

    script = [READ, DONE, {"tools": [{"Read": {"text": "b"}}], "when": {"purpose": "notes"}, "times": "always"}]
    async with open_family(tmp_path, script, read=read) as family:
        await run_loop(family.parent, RunLimits())
        reply = await run_helper(family.parent, "Write the notes.", "notes", max_turns=2)
        assert [call["name"] for call in reply.tool_calls] == ["Read"]
        assert asked == ["a"]
        assert b"cannot be used here" in family.bodies("main")[-1]
        await run_helper(family.parent, "Write the notes.", "notes", max_turns=3, denial=allow_all)
        assert asked == ["a", "b", "b"]
        await run_helper(family.parent, "Edit.", "notes", max_turns=3, denial=allow_all, until=lambda *_: True)
        assert asked == ["a", "b", "b", "b"]


async def test_helper_can_start_from_earlier_snapshot(tmp_path: Path) -> None:
    async with open_family(tmp_path, [READ, DONE, NOTES], read=code) as family:
        await run_loop(family.parent, RunLimits(turns=1))
        start, before = HelperStart.of(family.parent), cached(family)
        await run_loop(family.parent, RunLimits())
        family.parent.request_counts["notes"] = 6
        await run_helper(family.parent, "Write the notes.", "notes", start=start)
        (entry,) = family.log("main", "notes")
        assert (entry["turn"], entry["usage"]["cache_read_input_tokens"]) == (7, before)
        assert b"All done." not in family.bodies("main")[-1]


async def test_helper_can_edit_known_files_without_reading(tmp_path: Path) -> None:
    path, other = tmp_path / "a.txt", tmp_path / "b.txt"
    for file in (path, other):
        file.write_text("old")
    edits = [{"Edit": {"file_path": str(file), "old_string": "old", "new_string": "new"}} for file in (path, other)]
    async with open_family(tmp_path, [DONE, {"purpose": "notes", "tools": edits, "times": "always"}]) as family:
        family.parent.tools = {**family.parent.tools, "Edit": Edit()}
        await run_loop(family.parent, RunLimits())
        start = attrs.evolve(HelperStart.of(family.parent), known={path: b"old"})
        await run_helper(family.parent, "Edit.", "notes", max_turns=2, denial=allow_all, start=start)
        assert (path.read_text(), other.read_text()) == ("new", "old")
        assert not family.parent.workspace.seen.known()


@pytest.mark.parametrize(("model", "output"), [("claude-opus-5-5", 1), ("claude-sonnet-4-5", 0)])
async def test_refresh_keeps_prefix_of_waiting_agent_alive(tmp_path: Path, model: str, output: int) -> None:
    script = [
        {"tools": [{"Read": {"text": "a"}}]},
        DONE,
        {"text": "x", "when": {"purpose": "refresh"}, "times": "always"},
    ]
    async with open_family(tmp_path, script, read=code, model=model) as family:
        parent = family.parent
        assert await refresh_prefix(parent) is None
        await run_loop(parent, RunLimits(turns=1))
        for _ in range(3):
            expected = cached(family)
            family.served.clock.advance(290)
            usage = await refresh_prefix(parent)
            assert usage is not None
            assert (usage.read, usage.output, usage.write_5m) == (expected, output, 0)
        family.served.clock.advance(290)
        await run_loop(parent, RunLimits())
        assert family.log("main")[-1]["usage"]["cache_read_input_tokens"] == expected

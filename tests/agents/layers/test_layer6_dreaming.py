"""Dreams: a helper consolidates a copy of the memory over real HTTP; only changes without loss are applied."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.errors import ModelError
from coterie.agents.events.layer_events import Dreamed, MemoryChanged
from coterie.agents.layers.layer6_dreaming.dream_run import Dreamer, recent_sessions
from coterie.agents.layers.layer6_dreaming.scheduler import DreamScheduler
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.runtime.setup.built_in_tools import BUILT_IN
from coterie.memory.dreaming.dream_change import load_changes
from coterie.memory.dreaming.dream_lock import LOCK, DueCheck, acquire_dream_lock, last_dream_time
from coterie.memory.errors import DreamRefused
from coterie.memory.layer_settings import DreamingSettings
from coterie.memory.recall.query_log import log_query
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import MemoryStore
from tests.agents.scripted_agent import ObservedAgent, open_agent, watch

USER = Author(by="user")
SESSIONS = 5
DONE = {"purpose": "dream", "text": "All is in order."}


def topic(name: str, body: str) -> str:
    return f"---\nname: {name}\ndescription: {name}\ntype: project\n---\n{body}\n"


@attrs.frozen(kw_only=True)
class DreamHarness(ObservedAgent):
    """An agent with dreams, its events and the server."""

    store: MemoryStore
    dreamer: Dreamer
    sessions: tuple[Path, ...]

    @property
    def states(self) -> list[str]:
        """Names of these states."""
        return [event.state for event in self.of_type(Dreamed)]

    async def reached(self, state: str) -> None:
        """Wait until a dream is in *state*."""
        while state not in self.states:
            await trio.testing.wait_all_tasks_blocked(0.001)

    def texts(self) -> dict[str, str]:
        """Texts of all memories and of the index, by path."""
        return {path: (self.store.read(path) or b"").decode() for path in ("MEMORY.md", *self.store.paths())}

    @asynccontextmanager
    async def background(self, drain: float = 60.0) -> AsyncIterator[DreamScheduler]:
        touched = partial(recent_sessions, self.sessions[0].parent, self.agent.clock)
        settings = DreamingSettings(drain=drain)
        dreamer = attrs.evolve(self.dreamer, settings=settings)
        dreams = DreamScheduler(dreamer, DueCheck(self.store.directory, touched, settings, self.agent.clock))
        async with dreams.open():
            yield dreams


def copy_of(directory: Path, path: str) -> str:
    """Return the path of a memory in the working copy."""
    return str(directory / "dream" / "memory" / path)


def write(directory: Path, path: str, text: str) -> dict[str, Any]:
    return {"Write": {"file_path": copy_of(directory, path), "content": text}}


def read(directory: Path, path: str) -> dict[str, Any]:
    return {"Read": {"file_path": copy_of(directory, path)}}


def turn(*calls: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {"purpose": "dream", "tools": list(calls), **facts}


@asynccontextmanager
async def open_dream_harness(
    directory: Path, files: dict[str, str], *replies: dict[str, Any], settings: DreamingSettings | None = None
) -> AsyncIterator[DreamHarness]:
    script = json.dumps({"default": [{"text": "done"}, *replies]})
    sessions = tuple(directory / "sessions" / f"s{number}" for number in range(SESSIONS))
    for session in sessions:
        transcript = session / "agents" / "main" / "transcript.jsonl"
        transcript.parent.mkdir(parents=True, exist_ok=True)
        transcript.write_text('{"said": "the user moved to Ghent"}\n' * 9)
    async with open_agent(script, directory, *BUILT_IN) as (agent, served):
        store = MemoryStore.at(directory / "memory", agent.clock)
        for path, text in files.items():
            store.write(path, text.encode(), USER, base=None)
        dreamer = Dreamer(
            agent=agent,
            store=store,
            settings=settings or DreamingSettings(),
            author=lambda: Author(by="agent", agent="main", session="s0"),
            scratch=directory,
        )
        assert (await run_loop(agent, RunLimits())).reason == "completed"
        yield DreamHarness(
            agent=agent, store=store, dreamer=dreamer, events=watch(agent), served=served, sessions=sessions
        )


ANN = topic("ann", "Ann likes tea.")
BEN = topic("ben", "Ben likes coffee.")
BOTH = topic("people", "Ann likes tea.\nBen likes coffee.\nThe user moved to Ghent on 2026-11-15.")


async def test_dream_merges_memories_and_records_evidence(tmp_path: Path) -> None:
    evidence = write(tmp_path, "../evidence.md", "- people.md | s1/main:3, s7/main:1\n")
    look = turn(
        read(tmp_path, "MEMORY.md"),
        read(tmp_path, "ann.md"),
        read(tmp_path, "ben.md"),
        {"Grep": {"pattern": "moved", "path": str(tmp_path / "sessions" / "s1" / "agents"), "output_mode": "content"}},
        {"Bash": {"command": f"wc -l {tmp_path}/sessions/s1/agents/main/transcript.jsonl"}},
    )
    tidy = turn(
        write(tmp_path, "people.md", BOTH), write(tmp_path, "ann.md", ""), write(tmp_path, "ben.md", ""), evidence
    )
    async with open_dream_harness(tmp_path, {"ann.md": ANN, "ben.md": BEN}, look, tidy, DONE) as night:
        log_query(night.store.directory, "who likes tea?", ["ann.md"], night.agent.clock)
        change = await night.dreamer.dream(night.sessions)
        assert night.states == ["starting", "updating", "completed"]
        last = night.of_type(Dreamed)[-1]
        assert (last.change, last.applied, last.waiting) == (change.id, 3, 0)
        assert night.store.paths() == ["people.md"]
        assert "(people.md)" in night.texts()["MEMORY.md"]
        added = next(file for file in change.files if file.path == "people.md")
        assert added.hunks[0].evidence == ("s1/main:3",)
        assert change.recall is not None
        assert (change.recall.queries, change.recall.found - change.recall.kept) == (1, 0)
        assert len(change.turns) == len(night.requests("dream")) == 3
        assert [event.by for event in night.events if isinstance(event, MemoryChanged)] == ["dream"] * 3
        assert not (tmp_path / "dream").exists()
        assert load_changes(night.store.directory) == [change]
        night.store.undo(change.group, USER)
        assert night.store.paths() == ["ann.md", "ben.md"]
        results = [entry["usage"]["cache_read_input_tokens"] for entry in night.requests("dream")]
        assert all(results)


async def test_dream_can_write_only_in_its_copy(tmp_path: Path) -> None:
    outside = [tmp_path / "memory" / "ann.md", tmp_path / "src.py", tmp_path / "dream" / "base" / "ann.md"]
    calls = [{"Read": {"file_path": str(path)}} for path in outside[:2]]
    calls += [{"Write": {"file_path": str(path), "content": "x"}} for path in outside]
    calls += [
        {"Write": {"file_path": copy_of(tmp_path, "../../../out.md"), "content": "x"}},
        {"Bash": {"command": f"rm -r {tmp_path}/memory"}},
        {"Bash": {"command": f"cat {tmp_path}/memory/ann.md > {tmp_path}/src.py"}},
        {"Read": {"file_path": "/etc/passwd"}},
    ]
    async with open_dream_harness(tmp_path, {"ann.md": ANN}, turn(*calls), DONE) as night:
        (tmp_path / "src.py").write_text("mine")
        change = await night.dreamer.dream(night.sessions)
        assert night.states == ["starting", "completed"]
        assert not change.files
        assert night.of_type(Dreamed)[-1].change is None
        assert night.texts()["ann.md"] == ANN
        assert (tmp_path / "src.py").read_text() == "mine"
        assert not (tmp_path.parent / "out.md").exists()


async def test_dream_without_edits_changes_nothing_and_counts(tmp_path: Path) -> None:
    async with open_dream_harness(tmp_path, {"ann.md": ANN}, {"purpose": "dream", "text": "nothing"}) as night:
        before = night.texts()
        assert not (await night.dreamer.dream(night.sessions)).files
        assert night.texts() == before
        assert last_dream_time(night.store.directory, night.agent.clock) is not None
        assert not load_changes(night.store.directory)


async def test_failed_dream_is_event_and_keeps_time_of_last_dream(tmp_path: Path) -> None:
    async with open_dream_harness(tmp_path, {"ann.md": ANN}, turn(write(tmp_path, "new.md", "x"))) as night:
        (night.store.directory / LOCK).write_text("{}")
        os.utime(night.store.directory / LOCK, (5.0, 5.0))
        with pytest.raises(ModelError):  # the script has no second reply
            await night.dreamer.dream(night.sessions)
        assert night.states == ["starting", "updating", "failed"]
        assert night.of_type(Dreamed)[-1].reason
        assert (night.store.directory / LOCK).stat().st_mtime == 5.0
        assert not (tmp_path / "dream").exists()
        assert night.store.paths() == ["ann.md"]


async def test_background_dream_begins_when_due(tmp_path: Path) -> None:
    tidy = turn(write(tmp_path, "new.md", topic("new", "New.")))
    async with open_dream_harness(tmp_path, {"ann.md": ANN}, tidy, DONE) as night, night.background() as dreaming:
        dreaming.on_run_finished()
        dreaming.on_run_finished()
        await dreaming.wait_until_idle()
        assert night.store.paths() == ["ann.md", "new.md"]
        assert night.states[-1] == "completed"
        dreaming.on_run_finished()
        await dreaming.wait_until_idle()
        assert "hours ago" in (dreaming.not_due or "")
        assert night.states.count("starting") == 1


async def test_end_of_block_waits_for_dream_then_kills_it(tmp_path: Path) -> None:
    async with open_dream_harness(tmp_path, {"ann.md": ANN}, {**DONE, "until": "never"}) as night:
        before = night.texts()
        async with night.background(drain=0.2) as dreaming:
            dreaming.on_run_finished()
        assert night.states == ["starting", "killed"]
        assert night.texts() == before
        assert last_dream_time(night.store.directory, night.agent.clock) is None


async def test_background_failure_is_event_but_running_dream_is_not(tmp_path: Path) -> None:
    async with open_dream_harness(tmp_path, {"ann.md": ANN}) as night, night.background() as dreaming:
        dreaming.on_run_finished()
        await dreaming.wait_until_idle()
        assert night.states == ["starting", "failed"]
        night.events.clear()
        lock = acquire_dream_lock(night.store.directory, night.agent.clock)
        with pytest.raises(DreamRefused):
            await night.dreamer.dream(night.sessions)
        lock.release()
        assert not night.events

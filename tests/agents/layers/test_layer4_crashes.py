"""A crash, full disk or cancellation at any step of a compaction leaves the old state or the new one, never a mix."""

import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from coterie.agents.events.layer_events import Compacted, LayerFailed
from coterie.agents.layers.layer3_session_notes import SessionNotesLayer
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.layers.layer4_compaction.on_demand import OnDemandCompaction
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.transcript import LoadedTranscript, TranscriptWriter, load_transcript
from coterie.agents.loop.conversation.transcript_records import Addition, Boundary, EpochRecord, read_line
from coterie.agents.loop.loop import close_open_calls, run_loop
from coterie.agents.root_link.job_messages import CompactJob, Pivot, Side
from coterie.agents.tools.files.edit import Edit
from coterie.files import Operation, file_faults
from coterie.memory.layer_settings import CompactionSettings, NotesSettings
from tests.agents.disk_faults import FaultAt
from tests.agents.layers.test_layer4_compaction import LAYERS, LIMITS, SUMMARY, long, noting, working
from tests.agents.opened_layers import open_notes, with_on_demand_compaction
from tests.agents.scripted_agent import NotingTool, of_type, open_agent, open_resumed_agent, watch
from tests.embedded_server import Served
from tests.seeded_faults import SeededFaults

WINDOW = 45_000
"""Window in tokens; 12,000 remain after the reserve and the margin."""
TURNS = 15
ASKED_AT = 6
"""Number of the tool call during which a compaction is requested."""
SIDES: dict[str, Side] = {"from": "from", "up_to": "up_to"}
WAYS = ["notes", "summary", "rule", *SIDES]
NOTES = NotesSettings(first=1_500, step=1_000, calls=1, share=1.0)

State = tuple[bytes, Boundary | None]
"""State of a transcript: the conversation and the last compaction."""


@attrs.define(eq=False)
class Recorded:
    """The states of an agent's conversation, each with the size of the transcript that holds it."""

    states: list[tuple[int, State]]
    attempted: State
    """The state that was recorded last, or should have been."""

    @classmethod
    def of(cls, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> "Recorded":
        """Note all states that are recorded from now on."""
        path, record = agent.transcript.path, TranscriptWriter.record
        first = state_of(load_transcript(path))
        recorded = cls([(path.stat().st_size, first)], first)

        def recording(
            writer: TranscriptWriter, conversation: Conversation, *also: Addition, boundary: Boundary | None = None
        ) -> None:
            recorded.attempted = conversation.prefix_bytes(), boundary or recorded.states[-1][1][1]
            record(writer, conversation, *also, boundary=boundary)
            recorded.states.append((path.stat().st_size, recorded.attempted))

        monkeypatch.setattr(TranscriptWriter, "record", recording)
        return recorded

    def around(self, size: int) -> list[State]:
        """Return the possible states of a transcript cut to *size* bytes: one state if the cut ends a write."""
        old = [state for end, state in self.states if end <= size][-1:]
        new = [state for end, state in self.states if end >= size][:1]
        return old if any(end == size for end, _ in self.states) else [*old, *new]


def compacting(way: str) -> CompactionStep:
    return CompactionStep(settings=CompactionSettings(by_notes=way == "notes", by_model=way != "rule"))


@asynccontextmanager
async def compacted_by(way: str, directory: Path, *others: dict[str, Any]) -> AsyncIterator[tuple[Agent, Served]]:
    """Run a thinking agent whose tool loop is compacted by *way*, and return its recorded states."""
    compact = compacting(way)

    async def act(word: str) -> str:
        if word == str(ASKED_AT) and way in SIDES:
            by_hand.enqueue(CompactJob(pivot=Pivot(side=SIDES[way], message=8)))
        if compact.notes is not None:
            await compact.notes.wait_until_written()
        return long(5_000)(word)

    by_hand = OnDemandCompaction(compact)
    tools = (NotingTool(name="Note", act=act), Edit())
    script = working(TURNS, noting(directory), SUMMARY, *others)
    async with open_agent(script, directory, *tools, layers=LAYERS, window=WINDOW, compact=compact) as (agent, served):
        agent.pipeline = with_on_demand_compaction(agent.pipeline, by_hand)
        if way != "notes":
            yield agent, served
            return
        async with open_notes(agent, NOTES) as compact.notes:
            yield agent, served


async def go_on(way: str, directory: Path, transcript: bytes) -> None:
    """Resume an agent from *transcript* with the files of *directory*, and run it to its end."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(shutil.copytree(directory, Path(name) / "copy"))
        (copy / "transcript.jsonl").write_bytes(transcript)
        async with compacted_by(way, copy) as (agent, served):
            close_open_calls(agent)
            if agent.has_work:
                ended = await run_loop(agent, LIMITS)
                assert (ended.reason, ended.text) == ("completed", "done"), ended.error
            assert {entry["status"] for entry in served.requests} <= {200}
            assert agent.user_texts == ["the task"]


def state_of(loaded: LoadedTranscript) -> State:
    assert loaded.conversation is not None
    return loaded.conversation.prefix_bytes(), loaded.boundary


def record_ends(content: bytes) -> list[int]:
    """Every record is a line after an empty line."""
    return list(accumulate(len(line) for line in content.splitlines(keepends=True)))[1::2]


def boundary_lines(content: bytes) -> Iterator[tuple[int, int]]:
    """Return the start and end offsets of the records of compactions."""
    start = 0
    for end in record_ends(content):
        record = read_line(content[start:end].strip(b"\n"))
        if isinstance(record, EpochRecord) and record.boundary:
            yield start, end
        start = end


def cuts_of(content: bytes, draw: random.Random) -> list[int]:
    """Return every end of a record, and offsets inside records: few in most, many in compactions.

    The first two records, the task and whose words it is, are there.
    """
    ends = record_ends(content)[1:]
    cuts = {*ends, *(end - 1 for end in ends), *draw.sample(range(ends[0], len(content)), 10)}
    for start, end in boundary_lines(content):
        near = range(max(ends[0], start - 3_000), min(end + 3_000, len(content)))
        cuts |= {start, start + 1, start + 2, end - 2, end - 1, end, *draw.sample(near, 15)}
        cuts |= set(draw.sample(range(start, end), 15))
    return sorted(cut for cut in cuts if cut >= ends[0])


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_transcript_cut_anywhere_has_old_or_new_state(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that is resumed from the cut transcript also runs to its end."""
    draw, path = random.Random(way), tmp_path / "cut.jsonl"
    async with compacted_by(way, tmp_path) as (agent, _):
        recorded, events = Recorded.of(agent, monkeypatch), watch(agent)
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert of_type(events, Compacted)[0].by == ("summary" if way in SIDES else way)
        content = agent.transcript.path.read_bytes()
        cuts = cuts_of(content, draw)
        for cut in cuts:
            path.write_bytes(content[:cut])
            with open_resumed_agent(agent, path) as again:
                assert state_of(again.transcript.loaded) in recorded.around(cut), cut
    start, end = next(boundary_lines(content))
    half_a_reply = content.index(b'{"kind":"reply"', end)
    for cut in (start, end - 9, end, half_a_reply, *draw.sample(cuts, 3)):
        await go_on(way, tmp_path, content[:cut])


def is_transcript(path: Path) -> bool:
    return path.name == "transcript.jsonl"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "behind", "torn"),
    [("write", 0, None), ("write", 0, 0.5), ("write", 0, 0.999), ("write", 1, 0.9), ("fsync", 0, None)],
    ids=["full", "torn", "torn at the end", "torn right behind", "not synced"],
)
async def test_unrecordable_compaction_ends_run_with_old_or_new_state(
    operation: Operation, behind: int, torn: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault hits the write of the boundary, the next write, or the sync before the next call."""
    (tmp_path / "whole").mkdir()
    async with compacted_by("summary", tmp_path / "whole") as (agent, _):
        with monkeypatch.context() as patches:
            recorded = Recorded.of(agent, patches)
            await run_loop(agent, LIMITS)
        first = next(number for number, (_, state) in enumerate(recorded.states) if state[1] is not None)
    (tmp_path / "faulty").mkdir()
    async with compacted_by("summary", tmp_path / "faulty") as (agent, _):
        agent.durability = "turn"
        # A turn has two writes, the reply and the results of its calls, and one sync before each model call.
        number = first - 1 + behind if operation == "write" else (first - 1) // 2
        with monkeypatch.context() as patches:
            recorded = Recorded.of(agent, patches)
            fault = FaultAt(operation, is_transcript, number, torn)
            with file_faults(fault), pytest.raises(OSError, match=r"disk|space"):
                await run_loop(agent, LIMITS)
        content = agent.transcript.path.read_bytes()
        held = state_of(load_transcript(agent.transcript.path))
        assert held in (recorded.states[-1][1], recorded.attempted)
        assert (held[1] is None) == (operation == "write" and behind == 0)
    await go_on("summary", tmp_path / "faulty", content)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_random_disk_failures_leave_old_or_new_state(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent with notes is resumed after each failure until it has finished."""
    faults = SeededFaults(seed, torn=0.02, full=0.02, fsync=0.04, rename=0.05)
    for _ in range(100):
        async with compacted_by("notes", tmp_path) as (agent, _served):
            agent.durability = "turn"
            with monkeypatch.context() as patches, file_faults(faults):
                recorded = Recorded.of(agent, patches)
                try:
                    close_open_calls(agent)
                    ended = await run_loop(agent, LIMITS)
                except OSError:
                    ended = None
        held = state_of(load_transcript(tmp_path / "transcript.jsonl"))
        assert held in (recorded.states[-1][1], recorded.attempted)
        if ended is not None:
            break
    assert ended is not None
    assert (ended.reason, ended.text) == ("completed", "done"), ended.error
    assert held[1] is not None


@pytest.mark.parametrize("operation", ["write", "fsync", "rename"])
async def test_model_is_called_when_notes_cannot_be_written(operation: Operation, tmp_path: Path) -> None:
    async with compacted_by("notes", tmp_path) as (agent, _):
        events = watch(agent)
        with file_faults(FaultAt(operation, lambda path: path.parent == tmp_path and not is_transcript(path))):
            assert (await run_loop(agent, LIMITS)).text == "done"
        assert {each.by for each in of_type(events, Compacted)} == {"summary"}
        assert {each.layer for each in of_type(events, LayerFailed)} == {"notes"}


@pytest.mark.parametrize("operation", ["write", "rename"])
async def test_long_message_stays_whole_when_disk_is_full(operation: Operation, tmp_path: Path) -> None:
    words = " ".join(f"word{number}" for number in range(6_500))
    async with compacted_by("summary", tmp_path) as (agent, served):
        agent.append_message("user", [text_block(words)])
        events = watch(agent)
        with file_faults(FaultAt(operation, lambda path: "tool-results" in path.parts)):
            assert (await run_loop(agent, LIMITS)).text == "done"
        assert of_type(events, Compacted)[0].tokens_after > 15_000
        assert {entry["status"] for entry in served.requests} == {200}


async def check_cancelled(by: str, agent: Agent, waits: Callable[[], Awaitable[None]]) -> bytes:
    """Cancel a run while it *waits*, check that nothing has changed, and return the transcript's state."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_loop, agent, LIMITS)
        await waits()
        before, content = agent.conversation.prefix_bytes(), agent.transcript.path.read_bytes()
        (agent.interrupt if by == "interrupt" else nursery.cancel_scope.cancel)()
    assert agent.conversation.prefix_bytes() == before
    assert agent.transcript.path.read_bytes() == content
    assert state_of(load_transcript(agent.transcript.path)) == (before, None)
    return content


@pytest.mark.slow
@pytest.mark.parametrize("by", ["interrupt", "cancel"])
async def test_cancellation_during_summary_changes_nothing(by: str, tmp_path: Path) -> None:
    slow = {"purpose": "compaction", "when": {"turn": 1}, "until": "go", "text": "<summary>Late.</summary>"}
    async with compacted_by("summary", tmp_path, slow) as (agent, served):
        signals = served.server.control.signals

        async def waits() -> None:
            while "go" not in signals.awaited:
                await trio.lowlevel.checkpoint()

        content = await check_cancelled(by, agent, waits)
        signals.raise_signal("go")
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert {entry["status"] for entry in served.requests} == {200}
    await go_on("summary", tmp_path, content)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["interrupt", "cancel"])
async def test_cancellation_during_wait_for_notes_changes_nothing(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact, awaited, settled = CompactionStep(), trio.Event(), SessionNotesLayer.wait_until_written

    async def watched(notes: SessionNotesLayer) -> None:
        awaited.set()
        await settled(notes)

    monkeypatch.setattr(SessionNotesLayer, "wait_until_written", watched)
    script = working(TURNS, {**noting(tmp_path), "until": "go"}, SUMMARY)
    tools = (NotingTool(name="Note", act=long(5_000)), Edit())
    async with (
        open_agent(script, tmp_path, *tools, layers=LAYERS, window=WINDOW, compact=compact) as (agent, served),
        open_notes(agent, NOTES) as compact.notes,
    ):
        content = await check_cancelled(by, agent, awaited.wait)
        served.server.control.signals.raise_signal("go")
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert load_transcript(agent.transcript.path).boundary is not None
        assert {entry["status"] for entry in served.requests} == {200}
    await go_on("notes", tmp_path, content)

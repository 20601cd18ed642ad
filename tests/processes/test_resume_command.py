"""`coterie resume` after kill -9, also over compactions: nothing lost, nothing repeated, identical bytes."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.events.root_events import AgentChanged
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.prefix import PrefixMessage
from coterie.agents.loop.conversation.replay import replay_turns
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.conversation.transcript_records import EpochRecord, read_line
from coterie.agents.loop.loop import INTERRUPTED
from coterie.memory.compaction.summary_text import block_text
from coterie.orchestrator.session.root_lock import find_root
from coterie.session_directory import MAIN, TRANSCRIPT
from tests.processes.programs import open_server
from tests.processes.project_shell import BYPASS, ProjectShell
from tests.processes.session_record import conversation

pytestmark = pytest.mark.slow

TURNS = 20


class Place(ProjectShell):
    """A project and a home; tools leave lines in a file."""

    def prepare(self) -> None:
        """Restore the initial project, with an empty home, so that only the crash differs between two runs."""
        for directory in (self.project, self.project.parent / "home"):
            shutil.rmtree(directory, ignore_errors=True)
        self.write("a.txt", "hello\n")

    def run_whole(self) -> Conversation:
        """Run from the start to the end, and return the conversation."""
        self.prepare()
        done = self.coterie("run", "-p", "Go.", *BYPASS)
        assert done.returncode == 0, done.stderr
        return conversation(self.session)

    def resume(self, *arguments: str, session: str = "") -> subprocess.CompletedProcess[str]:
        """Resume the session from another directory."""
        return ProjectShell(self.project.parent).coterie("resume", session or self.session.id, *arguments, *BYPASS)

    @property
    def transcript(self) -> Path:
        return self.session.agent_directory(MAIN) / TRANSCRIPT

    def effects(self) -> list[int]:
        """Return the turns whose command ran, with repetitions."""
        path = self.project / "effects"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def kill_root_if_alive(self) -> None:
        if (root := find_root(self.session)) is not None:
            _kill(root.pid)

    def kill_lead(self) -> None:
        """Kill the current process of the lead."""
        _kill([event.pid for event in self.events(AgentChanged) if event.pid][-1])


def script() -> dict[str, Any]:
    """Twenty turns that read and append to a file, then an answer."""
    replies = [
        {
            "text": f"turn {turn}",
            "tools": [{"Read": {"file_path": "a.txt"}}] if turn % 3 == 0 else [_effect(turn)],
        }
        for turn in range(1, TURNS)
    ]
    return {"default": [*replies, {"text": "done"}]}


def _effect(turn: int) -> dict[str, Any]:
    return {"Bash": {"command": f"echo {turn} >> effects; echo did {turn}"}}


@contextlib.contextmanager
def open_place(project: Path, script: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A place whose model follows *script*, and outlives the runs of a test."""
    place = Place(project)
    with open_server(*place.model(json.dumps(script))) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
        yield place


@pytest.fixture
def place(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with open_place(project, script(), monkeypatch) as opened:
        yield opened


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def running(place: Place) -> Iterator[Callable[[int, float], None]]:
    """Start a run, and wait until it has printed *lines* lines, and then for a moment."""
    with subprocess.Popen(
        place.command("run", "Go.", *BYPASS),
        cwd=place.project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:

        def wait(lines: int, pause: float) -> None:
            assert process.stdout is not None
            for _ in range(lines):
                process.stdout.readline()
            time.sleep(pause)  # chaos, not synchronisation: any moment will do

        yield wait
        assert process.stdout is not None
        process.stdout.read()


def interrupted(reference: Conversation, calls: list[str]) -> list[PrefixMessage]:
    """Return the messages of a run in which these calls were interrupted: no other byte depends on their results."""
    blocks = {f'"tool_use_id":"{call}"'.encode(): INTERRUPTED.block(call) for call in calls}

    def told(block: bytes) -> bytes:
        return next((error for key, error in blocks.items() if key in block), block)

    return [PrefixMessage(role, tuple(map(told, blocks_))) for role, blocks_ in reference.messages]


def cut_short(conversation: Conversation) -> list[str]:
    """Return the calls that were answered as interrupted."""
    results = [block for message in conversation.messages for block in message.blocks if b'"tool_use_id"' in block]
    calls = [json.loads(block)["tool_use_id"] for block in results]
    return [call for call, block in zip(calls, results, strict=True) if block == INTERRUPTED.block(call)]


@pytest.mark.parametrize("runs", [2, pytest.param(25, marks=pytest.mark.soak)])
def test_killed_lead_is_resumed_without_losses_and_repetitions(place: Place, runs: int) -> None:
    """The lead is killed twice in each run, and resumed automatically."""
    draw = random.Random(8 + runs)
    reference = place.run_whole()
    for number in range(runs):
        place.prepare()
        with running(place) as wait:
            for _ in range(2):
                wait(draw.randint(1, TURNS - 3), draw.uniform(0, 0.03))
                place.kill_lead()
        ended = conversation(place.session)
        calls = cut_short(ended)
        assert len(calls) <= 2, number
        assert ended.messages == interrupted(reference, calls), number
        effects = place.effects()
        assert len(set(effects)) == len(effects), f"run twice: {effects} (run {number})"


@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.soak)])
def test_killed_session_is_resumed_without_losses_and_repetitions(place: Place, kills: int) -> None:
    draw = random.Random(6 + kills)
    whole = place.run_whole()
    for number in range(kills):
        place.prepare()
        with running(place) as wait:
            wait(draw.randint(1, 2 * TURNS - 3), draw.uniform(0, 0.03))
            place.kill_root_if_alive()
        crashed = conversation(place.session)
        done = place.resume()
        assert done.returncode in (0, 2), (number, done.stderr)
        resumed = conversation(place.session)
        assert resumed.prefix_bytes().startswith(crashed.prefix_bytes()), number
        effects = place.effects()
        assert len(set(effects)) == len(effects), f"run twice: {effects} (kill {number})"
        if not crashed.open_tool_uses:
            assert resumed.prefix_bytes() == whole.prefix_bytes(), number
        else:
            assert resumed.messages == interrupted(whole, crashed.open_tool_uses), number


def test_invalid_resume_is_refused_in_one_line_and_changes_nothing(place: Place) -> None:
    """An ended session without a new task, an unknown one, and a damaged one."""
    before, session = place.run_whole().prefix_bytes(), place.session.id
    refused = place.resume()
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"Error: session: {session} has completed its task; give a new task")
    assert conversation(place.session).prefix_bytes() == before

    unknown = place.resume(session="1999")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr == f"Error: session: no session's id begins with '1999'; the newest is {session}\n"

    transcript = place.transcript
    damaged = transcript.read_bytes().replace(b"hello", b"jello", 1)
    transcript.write_bytes(damaged)
    done = place.resume("go on")
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {transcript}: the file is damaged; start a new session: line ")
    assert transcript.read_bytes() == damaged


LONG_TURNS = 24
LONG_LINES = 40
"""Minimum number of lines that a run prints."""
SMALL = {
    "LAYERS_WINDOW_COMPACT_WINDOW": "60000",
    "LAYERS_CLEARING_BY_TIME": "false",
    "LAYERS_CLEARING_BY_CACHE": "false",
    "LAYERS_CLEARING_BY_API": "false",
    "LAYERS_NOTES_FIRST": "8000",
    "LAYERS_NOTES_STEP": "4000",
    "LAYERS_NOTES_SHARE": "1.0",
}
"""Settings with which a context of about 27,000 tokens is full."""


def long_script() -> dict[str, Any]:
    """Turns that think, append to a file and read much, then an answer; notes and summaries on request."""
    hint = "_What is being done at this moment, what is still open, and what comes next._"
    edit = {"file_path": "{{match.1}}", "old_string": hint, "new_string": f"{hint}\nNoted at {{{{turn}}}}."}
    notes = {"purpose": "notes", "when": {"last_user_text": r"/(\/\S+notes\.md)/"}, "tools": [{"Edit": edit}]}
    summary = {"purpose": "compaction", "times": "always", "text": "<summary>It went well.</summary>"}
    replies = [
        {"thinking": "what next", "text": f"turn {turn}", "tools": [{"Bash": {"command": long_command(turn)}}]}
        for turn in range(1, LONG_TURNS)
    ]
    return {"default": [notes, summary, *replies, {"text": "done", "times": "always"}]}


def long_command(turn: int) -> str:
    return f"echo {turn} >> effects; seq {turn * 10_000} {turn * 10_000 + 1_500}"


@pytest.fixture
def small_place(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A place whose model has a small window."""
    for name, value in SMALL.items():
        monkeypatch.setenv(f"COTERIE_{name}", value)
    with open_place(project, long_script(), monkeypatch) as opened:
        yield opened


def compactions(path: Path) -> list[str]:
    records = [read_line(line) for line in path.read_bytes().splitlines() if line]
    boundaries = [record.boundary for record in records if isinstance(record, EpochRecord)]
    return [boundary.by for boundary in boundaries if boundary is not None]


def check_ended(place: Place, *words: str) -> None:
    """Check that each part of the work was done once, over compactions, and that the last request has all *words*."""
    assert len(compactions(place.transcript)) >= 2
    last = list(replay_turns(place.transcript))[-1]
    texts = [block_text(block) for message in last.conversation.messages for block in message.blocks]
    assert [said for said in words if not any(said in text for text in texts)] == []
    assert conversation(place.session).messages[-1].blocks == (b'{"type":"text","text":"done"}',)
    effects = place.effects()
    assert len(set(effects)) == len(effects)
    assert len(effects) >= LONG_TURNS - 3


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_killed_session_is_resumed_over_its_compactions(small_place: Place, kills: int) -> None:
    """The user continues each killed session with a new text."""
    draw, place = random.Random(2 + kills), small_place
    for number in range(kills):
        place.prepare()
        with running(place) as wait:
            wait(draw.randint(1, LONG_LINES), draw.uniform(0, 0.05))
            place.kill_root_if_alive()
        whole = load_transcript(place.transcript).size
        crashed = place.transcript.read_bytes()[:whole]
        said = f'Mind run {number}:\n\tit is a "café".'
        done = place.resume(said)
        assert done.returncode == 0, (number, done.stderr)
        assert place.transcript.read_bytes().startswith(crashed), number
        check_ended(place, "Go.", said)

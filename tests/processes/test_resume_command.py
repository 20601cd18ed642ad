"""`coterie resume` after kill -9, also over compactions: nothing lost, nothing repeated, identical bytes."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.prefix import PrefixMessage
from coterie.agents.loop.conversation.replay import replay_turns
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.conversation.transcript_records import EpochRecord, read_line
from coterie.agents.loop.loop import INTERRUPTED
from coterie.memory.compaction.summary_text import block_text

pytestmark = pytest.mark.slow

TURNS = 20


@attrs.frozen(kw_only=True)
class Place:
    """A project and a home; tools leave lines in a file."""

    project: Path
    home: Path
    model: str
    """URL of the model."""

    def command(self, *arguments: str) -> list[str]:
        """Return a `coterie` command with all permissions."""
        return [sys.executable, "-P", "-m", "coterie", *arguments, "--permission-mode", "bypassPermissions"]

    def environment(self) -> dict[str, str]:
        model = {"ANTHROPIC_BASE_URL": self.model, "ANTHROPIC_API_KEY": "any"}
        # The prompt has the path of the memory, and the bytes of two homes are compared.
        memory = {"COTERIE_MEMORY_DIR": str(self.project.parent / "memory")}
        return {**os.environ, **model, **memory, "COTERIE_HOME": str(self.home)}

    @property
    def transcript(self) -> Path:
        """Transcript of the lead of the only session."""
        [path] = self.home.glob("projects/*/sessions/*/agents/main/transcript.jsonl")
        return path

    def conversation(self) -> Conversation:
        """Return the content of the transcript."""
        loaded = load_transcript(self.transcript).conversation
        assert loaded is not None
        return loaded

    def effects(self) -> list[int]:
        """Return the turns whose command ran, with repetitions."""
        path = self.project / "effects"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def kill_root(self) -> None:
        for record in self.home.glob("projects/*/sessions/*/root.json"):
            _kill(json.loads(record.read_bytes())["pid"])

    def kill_lead(self) -> None:
        """Kill the current process of the lead."""
        [log] = self.home.glob("projects/*/sessions/*/events.jsonl")
        told = [json.loads(line) for line in log.read_bytes().splitlines()]
        _kill(next(event["pid"] for event in reversed(told) if event.get("pid")))

    def session(self) -> str:
        [directory] = self.home.glob("projects/*/sessions/*")
        return directory.name


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
def open_model(path: Path, script: dict[str, Any]) -> Iterator[str]:
    """Serve *script* from *path*, and yield the URL of the server, which outlives the runs of a test."""
    path.write_text(json.dumps(script))
    command = [sys.executable, "-P", "-m", "coterie", "serve", "--port", "0", "--json", "--script", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


@pytest.fixture
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an embedded server."""
    with open_model(tmp_path_factory.mktemp("script") / "script.yaml", script()) as url:
        yield url


def fresh(root: Path, project: Path, model: str) -> Place:
    """Return the initial project with a new home, so that only the crash differs between two runs."""
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    (project / "a.txt").write_text("hello\n")
    home = root / f"home-{len(list(root.iterdir()))}"
    home.mkdir()
    return Place(project=project, home=home, model=model)


def run_whole(place: Place) -> None:
    command = place.command("run", "-p", "Go.")
    subprocess.run(command, cwd=place.project, env=place.environment(), check=True, capture_output=True, timeout=60)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def running(place: Place) -> Iterator[Callable[[int, float], None]]:
    """Start a run, and wait until it has printed *lines* lines, and then for a moment."""
    with subprocess.Popen(
        place.command("run", "Go."),
        cwd=place.project,
        env=place.environment(),
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


def resume(place: Place, *arguments: str, session: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        place.command("resume", session or place.session(), *arguments),
        cwd=place.home,
        env=place.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


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
def test_killed_lead_is_resumed_without_losses_and_repetitions(tmp_path: Path, model: str, runs: int) -> None:
    """The lead is killed twice in each run, and resumed automatically."""
    draw = random.Random(8 + runs)
    project = tmp_path / "project"
    reference = fresh(tmp_path, project, model)
    run_whole(reference)
    for number in range(runs):
        place = fresh(tmp_path, project, model)
        with running(place) as wait:
            for _ in range(2):
                wait(draw.randint(1, TURNS - 3), draw.uniform(0, 0.03))
                place.kill_lead()
        ended = place.conversation()
        calls = cut_short(ended)
        assert len(calls) <= 2, number
        assert ended.messages == interrupted(reference.conversation(), calls), number
        effects = place.effects()
        assert len(set(effects)) == len(effects), f"run twice: {effects} (run {number})"


@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.soak)])
def test_killed_session_is_resumed_without_losses_and_repetitions(tmp_path: Path, model: str, kills: int) -> None:
    draw = random.Random(6 + kills)
    project = tmp_path / "project"
    reference = fresh(tmp_path, project, model)
    run_whole(reference)
    whole = reference.conversation()
    for number in range(kills):
        place = fresh(tmp_path, project, model)
        with running(place) as wait:
            wait(draw.randint(1, 2 * TURNS - 3), draw.uniform(0, 0.03))
            place.kill_root()
        crashed = place.conversation()
        done = resume(place)
        assert done.returncode in (0, 2), (number, done.stderr)
        resumed = place.conversation()
        assert resumed.prefix_bytes().startswith(crashed.prefix_bytes()), number
        effects = place.effects()
        assert len(set(effects)) == len(effects), f"run twice: {effects} (kill {number})"
        if not crashed.open_tool_uses:
            assert resumed.prefix_bytes() == whole.prefix_bytes(), number
        else:
            assert resumed.messages == interrupted(whole, crashed.open_tool_uses), number


def test_invalid_resume_is_refused_in_one_line_and_changes_nothing(tmp_path: Path, model: str) -> None:
    """An ended session without a new task, an unknown one, and a damaged one."""
    place = fresh(tmp_path, tmp_path / "project", model)
    run_whole(place)
    before = place.conversation().prefix_bytes()
    refused = resume(place)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"Error: session: {place.session()} has completed its task; give a new task")
    assert place.conversation().prefix_bytes() == before

    unknown = resume(place, session="1999")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr == f"Error: session: no session's id begins with '1999'; the newest is {place.session()}\n"

    transcript = place.transcript
    damaged = transcript.read_bytes().replace(b"hello", b"jello", 1)
    transcript.write_bytes(damaged)
    done = resume(place, "go on")
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {transcript}: is damaged: line ")
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
def small_model(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an embedded server with a small window that outlives the runs of a test."""
    for name, value in SMALL.items():
        monkeypatch.setenv(f"COTERIE_{name}", value)
    with open_model(tmp_path_factory.mktemp("script") / "script.yaml", long_script()) as url:
        yield url


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
    assert place.conversation().messages[-1].blocks == (b'{"type":"text","text":"done"}',)
    effects = place.effects()
    assert len(set(effects)) == len(effects)
    assert len(effects) >= LONG_TURNS - 3


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_killed_session_is_resumed_over_its_compactions(tmp_path: Path, small_model: str, kills: int) -> None:
    """The user continues each killed session with a new text."""
    draw = random.Random(2 + kills)
    for number in range(kills):
        place = fresh(tmp_path, tmp_path / "project", small_model)
        with running(place) as wait:
            wait(draw.randint(1, LONG_LINES), draw.uniform(0, 0.05))
            place.kill_root()
        whole = load_transcript(place.transcript).size
        crashed = place.transcript.read_bytes()[:whole]
        said = f'Mind run {number}:\n\tit is a "café".'
        done = resume(place, said)
        assert done.returncode == 0, (number, done.stderr)
        assert place.transcript.read_bytes().startswith(crashed), number
        check_ended(place, "Go.", said)

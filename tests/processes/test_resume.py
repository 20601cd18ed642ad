"""`coterie resume` after kill -9: nothing lost, nothing run twice, the same bytes."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.conversation import Conversation, Message, load_transcript
from coterie.agents.loop import INTERRUPTED

pytestmark = pytest.mark.slow

TURNS = 20


@attrs.frozen(kw_only=True)
class Place:
    """A project and a home; the effects of tools are lines in a file."""

    project: Path
    home: Path

    def script(self) -> Path:
        """Twenty turns that read and that append to a file, then an answer."""
        replies = [
            {
                "text": f"turn {turn}",
                "tools": [{"Read": {"file_path": "a.txt"}}] if turn % 3 == 0 else [self._effect(turn)],
            }
            for turn in range(1, TURNS)
        ]
        path = self.home.parent / "script.yaml"
        path.write_text(json.dumps({"default": [*replies, {"text": "done"}]}))
        return path

    def _effect(self, turn: int) -> dict[str, Any]:
        return {"Bash": {"command": f"echo {turn} >> effects; echo did {turn}"}}

    def command(self, *arguments: str) -> list[str]:
        """A call of `coterie` with the script and all permissions."""
        options = ["--script", str(self.script()), "--permission-mode", "bypassPermissions"]
        return [sys.executable, "-P", "-m", "coterie", *arguments, *options]

    def environment(self) -> dict[str, str]:
        """Ours, with its own home."""
        return {**os.environ, "COTERIE_HOME": str(self.home)}

    def conversation(self) -> Conversation:
        """What the transcript of its one session holds."""
        [transcript] = self.home.glob("projects/*/sessions/*/agents/main/transcript.jsonl")
        loaded = load_transcript(transcript).conversation
        assert loaded is not None
        return loaded

    def effects(self) -> list[int]:
        """The turns whose command has run, as often as it has."""
        path = self.project / "effects"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def session(self) -> str:
        """The id of its one session."""
        [directory] = self.home.glob("projects/*/sessions/*")
        return directory.name


def fresh(root: Path, project: Path) -> Place:
    """The same project as it was at first, and a new home: only the crash tells two runs apart."""
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    (project / "a.txt").write_text("hello\n")
    home = root / f"home-{len(list(root.iterdir()))}"
    home.mkdir()
    return Place(project=project, home=home)


def run_whole(place: Place) -> None:
    command = place.command("run", "-p", "Go.")
    subprocess.run(command, cwd=place.project, env=place.environment(), check=True, capture_output=True, timeout=60)


def run_and_kill(place: Place, lines: int, pause: float) -> None:
    """Kill the run a moment after it has printed so many lines."""
    with subprocess.Popen(
        place.command("run", "Go."),
        cwd=place.project,
        env=place.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        time.sleep(pause)  # chaos, not synchronisation: any moment will do
        process.send_signal(signal.SIGKILL)


def resume(place: Place, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        place.command("resume", place.session(), *arguments),
        cwd=place.home,
        env=place.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def interrupted(reference: Conversation, calls: list[str]) -> list[Message]:
    """The messages of a run in which these calls were cut short: no other byte depends on their results."""
    blocks = {f'"tool_use_id":"{call}"'.encode(): INTERRUPTED.block(call) for call in calls}

    def told(block: bytes) -> bytes:
        return next((error for key, error in blocks.items() if key in block), block)

    return [Message(role, tuple(map(told, blocks_))) for role, blocks_ in reference.messages]


def check_kills(root: Path, seed: int, kills: int) -> None:
    draw = random.Random(seed)
    project = root / "project"
    reference = fresh(root, project)
    run_whole(reference)
    whole = reference.conversation()
    for number in range(kills):
        place = fresh(root, project)
        run_and_kill(place, draw.randint(1, 2 * TURNS - 3), draw.uniform(0, 0.03))
        crashed = place.conversation()
        done = resume(place)
        assert done.returncode in (0, 2), (seed, number, done.stderr)
        resumed = place.conversation()
        assert resumed.prefix_bytes().startswith(crashed.prefix_bytes()), (seed, number)
        effects = place.effects()
        assert len(set(effects)) == len(effects), f"run twice: {effects} (seed {seed}, kill {number})"
        if not crashed.open_tool_uses:
            assert resumed.prefix_bytes() == whole.prefix_bytes(), (seed, number)
        else:
            assert resumed.messages == interrupted(whole, crashed.open_tool_uses), (seed, number)


@pytest.mark.parametrize("seed", [7, 8])
def test_a_killed_run_is_resumed_with_nothing_lost_and_nothing_run_twice(tmp_path: Path, seed: int) -> None:
    """Ten kills in all, half of them for each seed."""
    check_kills(tmp_path, seed=seed, kills=5)


@pytest.mark.soak
def test_fifty_killed_runs_are_resumed(tmp_path: Path) -> None:
    check_kills(tmp_path, seed=9, kills=50)


def test_a_session_that_has_ended_goes_on_only_with_a_message(tmp_path: Path) -> None:
    place = fresh(tmp_path, tmp_path / "project")
    run_whole(place)
    before = place.conversation().prefix_bytes()
    refused = resume(place)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"Error: session: {place.session()} has ended; say what to do next")
    assert place.conversation().prefix_bytes() == before


def test_an_unknown_session_is_answered_with_the_newest(tmp_path: Path) -> None:
    place = fresh(tmp_path, tmp_path / "project")
    run_whole(place)
    done = subprocess.run(
        place.command("resume", "1999"),
        env=place.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: session: no session's id begins with '1999'; the newest is {place.session()}\n"


def test_a_damaged_transcript_is_refused_by_name_and_line_and_left_as_it_is(tmp_path: Path) -> None:
    place = fresh(tmp_path, tmp_path / "project")
    run_whole(place)
    [transcript] = place.home.glob("projects/*/sessions/*/agents/main/transcript.jsonl")
    damaged = transcript.read_bytes().replace(b"hello", b"jello", 1)
    transcript.write_bytes(damaged)
    done = resume(place, "go on")
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {transcript}: is damaged, line ")
    assert transcript.read_bytes() == damaged

"""`coterie run` over several compactions with kills in between: the work is completed and no user text is lost."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.loop.conversation.replay import replay_turns
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.conversation.transcript_records import EpochRecord, read_line
from coterie.memory.compaction.summary_text import block_text
from tests.processes.test_resume_command import Place, fresh, open_model, resume, running

pytestmark = pytest.mark.slow

TURNS = 24
LINES = 40
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


def script() -> dict[str, Any]:
    """Turns that think, append to a file and read much, then an answer; notes and summaries on request."""
    hint = "_What is being done at this moment, what is still open, and what comes next._"
    edit = {"file_path": "{{match.1}}", "old_string": hint, "new_string": f"{hint}\nNoted at {{{{turn}}}}."}
    notes = {"purpose": "notes", "when": {"last_user_text": r"/(\/\S+notes\.md)/"}, "tools": [{"Edit": edit}]}
    summary = {"purpose": "compaction", "times": "always", "text": "<summary>It went well.</summary>"}
    replies = [
        {"thinking": "what next", "text": f"turn {turn}", "tools": [{"Bash": {"command": command(turn)}}]}
        for turn in range(1, TURNS)
    ]
    return {"default": [notes, summary, *replies, {"text": "done", "times": "always"}]}


def command(turn: int) -> str:
    return f"echo {turn} >> effects; seq {turn * 10_000} {turn * 10_000 + 1_500}"


@pytest.fixture
def model(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an embedded server with a small window that outlives the runs of a test."""
    for name, value in SMALL.items():
        monkeypatch.setenv(f"COTERIE_{name}", value)
    with open_model(tmp_path_factory.mktemp("script") / "script.yaml", script()) as url:
        yield url


def compactions(path: Path) -> list[str]:
    """Return the strategy of each compaction."""
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
    assert len(effects) >= TURNS - 3


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_killed_session_is_resumed_over_its_compactions(tmp_path: Path, model: str, kills: int) -> None:
    """The user continues each killed session with a new text."""
    draw = random.Random(2 + kills)
    for number in range(kills):
        place = fresh(tmp_path, tmp_path / "project", model)
        with running(place) as wait:
            wait(draw.randint(1, LINES), draw.uniform(0, 0.05))
            place.kill_root()
        whole = load_transcript(place.transcript).size
        crashed = place.transcript.read_bytes()[:whole]
        said = f'Mind run {number}:\n\tit is a "café".'
        done = resume(place, said)
        assert done.returncode == 0, (number, done.stderr)
        assert place.transcript.read_bytes().startswith(crashed), number
        check_ended(place, "Go.", said)

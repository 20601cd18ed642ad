"""A lead that is compacted during its work still knows its team, its tasks, and open requests."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.loop.conversation.transcript import load_transcript

pytestmark = pytest.mark.slow

SETTINGS = """
model = "claude-opus-5-5"
thinking = true
[layers.window]
compact_window = 80000
[layers.notes]
first = 9000
step = 2000
calls = 1
share = 1.0
[layers.clearing]
by_cache = false
by_api = false
"""
TEAM = [f"scout{number}" for number in range(1, 5)]
TASK = "Look at all four parts, and tell me which of them is the slowest."
HINT = "_What is being done at this moment, what is still open, and what comes next._"

NOTES = {
    "when": {"last_user_text": r"/(\/\S+\/notes\.md)/"},
    "purpose": "notes",
    "tools": [{"Edit": {"file_path": "{{match.1}}", "old_string": HINT, "new_string": f"{HINT}\nWe look at parts."}}],
}
SUMMARY = {"purpose": "compaction", "times": "always", "text": "<summary>We look at parts.</summary>"}


def _script(helper: dict[str, Any]) -> str:
    """Four teammates send requests and wait; the lead reads, with thinking, until it is compacted."""
    starts = [
        {
            "Agent": {
                "description": f"look at {name}",
                "prompt": f"Look at the part of {name}.",
                "name": name,
                "stays": True,
                "run_in_background": True,
            }
        }
        for name in TEAM
    ]
    tasks = [{"TaskCreate": {"subject": f"measure the part of {name}", "description": "as it is"}} for name in TEAM]
    reading = {"thinking": "I read on.", "tools": [{"Read": {"file_path": "long.txt"}}]}
    lead = [
        {"thinking": "I need a team.", "text": "I start a team.", "tools": starts},
        {"thinking": "They need tasks.", "tools": tasks},
        {**reading, "until": [f"{name} asked" for name in TEAM]},
        *[reading] * 34,
        {"thinking": "That is all.", "text": "I am done."},
    ]
    asking = {
        name: [
            {"tools": [{"SendMessage": {"to": "main", "message": f"May I change {name}.py?"}}]},
            {"text": "I wait.", "signal": f"{name} asked"},
        ]
        for name in TEAM
    }
    return json.dumps({"main": [helper, *lead], **asking})


def _run(project: Path, script: str) -> dict[str, Any]:
    (project / "script.yaml").write_text(script)
    (project / ".coterie").mkdir()
    (project / ".coterie" / "settings.toml").write_text(SETTINGS)
    (project / "long.txt").write_text("".join(f"line {n}: there is much to be read here\n" for n in range(120)))
    options = ("--permission-mode", "bypassPermissions", "--script", "script.yaml", "--output-format", "json")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "coterie", "run", *options, TASK],
        cwd=project,
        env={name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize(
    ("helper", "by"),
    [
        pytest.param(NOTES, "notes", id="by notes"),
        pytest.param(SUMMARY, "summary", id="by the model", marks=pytest.mark.soak),
    ],
)
def test_a_compacted_lead_still_knows_its_team(project: Path, helper: dict[str, Any], by: str) -> None:
    result = _run(project, _script(helper))
    assert result["result"] == "I am done."
    loaded = load_transcript(Path(result["transcript"]))
    assert loaded.boundary is not None
    assert (loaded.boundary.by, loaded.boundary.trigger) == (by, "threshold")
    assert loaded.reply is not None
    assert loaded.reply.turn >= loaded.boundary.turn, "what came next was accepted"
    assert loaded.conversation is not None
    told = "\n".join(json.loads(block)["text"] for block in loaded.conversation.messages[0].blocks)
    for name in TEAM:
        assert f"- {name} (" in told
        assert f"Its task: Look at the part of {name}." in told
        assert f"measure the part of {name}" in told
        assert f"May I change {name}.py?" in told
    assert f"<user-message>\n{TASK}\n</user-message>" in told
    assert "We look at parts." in told

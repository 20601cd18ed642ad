import itertools
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from coterie.scenarios.demo.bugfix import run_bugfix

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def demo(*arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "coterie", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def played() -> dict[str, Any]:
    """What the demo gives to programs."""
    told: dict[str, Any] = json.loads(demo("--json"))
    return told


def test_each_turn_reads_what_the_one_before_cached_and_forks_read_the_whole_prefix(played: dict[str, Any]) -> None:
    rows = played["bill"]
    lead, forks = rows[:3], rows[3:]
    assert [row["agent"] for row in lead] == ["lead"] * 3
    for before, row in itertools.pairwise(lead):
        assert row["read"] == before["read"] + before["written"]
    cached = lead[-1]["read"] + lead[-1]["written"]
    assert {row["agent"] for row in forks} == {"reviewer-1", "reviewer-2"}
    assert all(row["read"] >= cached for row in forks)
    assert all(row["input"] == 0 for row in rows)


def test_the_bill_for_people_equals_the_servers_own(played: dict[str, Any]) -> None:
    output = demo()
    assert "our sum is equal to the server's own" in output
    total = sum(Decimal(row["cost_usd"]) for row in played["bill"])
    assert f"{total:.6f}" in output


def test_an_agent_finds_a_bug_fixes_it_and_proves_it(played: dict[str, Any]) -> None:
    """The demo itself looks into the file afterwards, and fails if it is not fixed."""
    fix = played["fix"]
    assert (fix["reason"], fix["turns"]) == ("completed", 6)
    assert fix["result"].startswith("Fixed.")


def test_the_same_script_streams_events_as_they_are_published(tmp_path: Path) -> None:
    done = run_bugfix(tmp_path, "stream-json", stdout=subprocess.PIPE)
    schema = Draft202012Validator(json.loads((ROOT / "docs/events.schema.json").read_text()))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for line in lines:
        schema.validate(line)
    assert {call["name"] for call in lines if call["kind"] == "tool_ended"} == {"Grep", "Glob", "Read", "Edit", "Bash"}
    assert [line["is_error"] for line in lines if line["kind"] == "tool_ended" and line["name"] == "Bash"] == [
        True,
        False,
    ]
    transcript = next(tmp_path.glob("home/projects/*/sessions/*/agents/main/transcript.jsonl"))
    records = Draft202012Validator(json.loads((ROOT / "docs/transcript.schema.json").read_text()))
    for record in filter(None, transcript.read_bytes().split(b"\n")):
        records.validate(json.loads(record))

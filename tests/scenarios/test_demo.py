import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from coterie.scenarios.demo.bugfix import run_bugfix

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def demo(*arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "coterie", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture(scope="module")
def played() -> dict[str, Any]:
    """What the demo gives to programs."""
    told: dict[str, Any] = json.loads(demo("--json"))
    return told


FORKS = {"arithmetic", "rounding", "limits", "coverage", "naming"}


def test_a_lead_forks_five_processes_that_read_its_prefix_from_the_cache(played: dict[str, Any]) -> None:
    rows = {row["name"]: row for row in played["team"]["costs"]["rows"]}
    assert rows.keys() == {"main", *FORKS}
    assert {rows[name]["parent"] for name in FORKS} == {"main"}
    assert all(rows[name]["cached_share"] > 0.9 for name in FORKS)
    assert played["team"]["reports"].keys() == FORKS
    assert "negative" in played["team"]["reports"]["limits"]


def test_the_bill_equals_the_servers_own_and_is_shown_with_the_states_of_all(played: dict[str, Any]) -> None:
    assert played["team"]["costs"]["total"]["cost_usd"] == played["team"]["billed_usd"]
    output = demo()
    assert "our sum is equal to the server's own" in output
    for name in FORKS:
        assert f"{name:<11} is starting" in output
        assert f"{name:<11} is done" in output
    assert "with perfect sharing" in output


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

import itertools
import json
import subprocess
import sys
from decimal import Decimal

import pytest

pytestmark = pytest.mark.slow


def demo(*arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "coterie", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_each_turn_reads_what_the_one_before_cached_and_forks_read_the_whole_prefix() -> None:
    rows = json.loads(demo("--json"))["bill"]
    lead, forks = rows[:3], rows[3:]
    assert [row["agent"] for row in lead] == ["lead"] * 3
    for before, row in itertools.pairwise(lead):
        assert row["read"] == before["read"] + before["written"]
    cached = lead[-1]["read"] + lead[-1]["written"]
    assert {row["agent"] for row in forks} == {"reviewer-1", "reviewer-2"}
    assert all(row["read"] >= cached for row in forks)
    assert all(row["input"] == 0 for row in rows)


def test_the_bill_for_people_equals_the_servers_own() -> None:
    output = demo()
    assert "our sum is equal to the server's own" in output
    total = sum(Decimal(row["cost_usd"]) for row in json.loads(demo("--json"))["bill"])
    assert f"{total:.6f}" in output


def test_an_agent_finds_a_bug_fixes_it_and_proves_it() -> None:
    """The demo itself looks into the file afterwards, and fails if it is not fixed."""
    fix = json.loads(demo("--json"))["fix"]
    assert (fix["reason"], fix["turns"]) == ("completed", 6)
    assert fix["result"].startswith("Fixed.")

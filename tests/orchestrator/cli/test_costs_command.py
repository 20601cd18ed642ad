"""`coterie costs` over ledgers written as sessions write them."""

import json
import subprocess
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.events.layer_events import BreakerTripped, CacheBroke
from coterie.orchestrator.gateway.ledger import LEDGER, Ledger
from coterie.session_directory import SessionDirectory
from tests.orchestrator.cli.command_runner import coterie, printed, refusal
from tests.orchestrator.gateway.test_ledger import line
from tests.orchestrator.session_writer import open_writer

costs = partial(coterie, "costs")
LINES = (
    line("main", prefix="01", write_5m=10_000, input=10, output=100),
    line("main", prefix="02", expected_read=10_000, read=10_000, write_5m=1_000, output=200),
    line("scout", parent="main", prefix="03", expected_read=11_000, read=10_000, write_5m=2_000, output=50),
    line("scout", parent="main", prefix="03", read=12_000, output=8_000, is_estimated=True),
    line("main", purpose="summary", prefix="04", read=11_000, output=20),
)


@pytest.fixture(autouse=True)
def session(newest_session: SessionDirectory) -> SessionDirectory:
    """The newest session of the working directory: a lead, a subagent, and cache misses."""
    with Ledger.open(newest_session.directory / LEDGER) as ledger:
        for each in LINES:
            ledger.append(each)
    with open_writer(newest_session.directory, "scout") as agent:
        agent.write_event(CacheBroke(cause="expired", detail="too late", read_before=11_000, read_now=0))
        agent.write_event(CacheBroke(cause="expired", detail="again", read_before=11_000, read_now=0))
        agent.write_event(BreakerTripped(failures=3, reason="the summary was empty"))
    return newest_session


def test_table_shows_costs_by_agent_and_json_everything_with_exact_dollars(session: SessionDirectory) -> None:
    done = costs(session.id[:-2])
    assert done.exit_code == 0
    assert [row.rstrip() for row in done.stdout.splitlines()] == [
        "agent    calls    read  written  input  output  cached   dollars   subtree",
        "main         3  21,000   11,000     10     320    66 %  0.065640  0.241040",
        "  scout      2  22,000    2,000      0   8,050    92 %  0.175400",
        "total        5  43,000   13,000     10   8,370    77 %  0.241040",
        "with perfect sharing  $0.236240",
        "without sharing       $0.289040",
        "without any cache     $0.391440",
        "1 reply incomplete: $0.162400 of the total is an upper bound",
        "1,000 tokens were expected in the cache but not read from it",
        "other calls per 100 turns: summary 33.3",
        "cache miss of scout: expired, 2 times",
        "breaker trips of scout: 1; its summaries failed repeatedly",
    ]
    found = printed("costs")
    assert found["session"] == session.id
    assert sum(Decimal(row["cost_usd"]) for row in found["rows"]) == Decimal(found["total"]["cost_usd"])
    assert Decimal(found["total"]["cost_usd"]) == sum(each.cost_usd for each in LINES)
    lead, scout = found["rows"]
    assert (lead["name"], lead["parent"], lead["depth"]) == ("main", None, 0)
    assert lead["subtree_cost_usd"] == found["total"]["cost_usd"]
    assert (scout["name"], scout["parent"], scout["depth"], scout["estimated"]) == ("scout", "main", 1, 1)
    assert scout["usage"] == {"input": 0, "read": 22_000, "write_5m": 2_000, "write_1h": 0, "output": 8_050}
    assert (found["turns"], found["per_100_turns"]) == (3, {"summary": pytest.approx(33.333, abs=0.001)})
    misses = [f"{each['agent']}: {each['cause']}, {each['detail']}" for each in found["breaks"]]
    assert misses == ["scout: expired, too late", "scout: expired, again"]
    [trip] = found["breaker_trips"]
    assert (trip["agent"], trip["failures"], trip["reason"]) == ("scout", 3, "the summary was empty")
    bounds = [Decimal(found[f"{name}_usd"]) for name in ("perfect_sharing", "without_sharing", "without_cache")]
    assert bounds == sorted(bounds)


@pytest.mark.parametrize(
    ("by", "names"), [("agent", ["main", "scout"]), ("purpose", ["turn", "summary"]), ("model", ["claude-opus-5-5"])]
)
def test_rows_are_grouped_by_the_option(by: str, names: list[str]) -> None:
    found = printed("costs", "--by", by)
    assert (found["by"], [row["name"] for row in found["rows"]]) == (by, names)


def test_damaged_entry_is_skipped_and_missing_ledger_refused(session: SessionDirectory) -> None:
    path = session.directory / LEDGER
    path.write_bytes(path.read_bytes().replace(b'"purpose":"summary"', b'"purpose":"Summary"'))
    done = costs("--json")
    assert (done.exit_code, done.stderr.startswith("ledger.jsonl:10: ")) == (1, True)
    assert json.loads(done.stdout)["total"]["requests"] == 4
    path.unlink()
    assert refusal(costs()).startswith(f"session: {session.id} has no costs yet")
    path.write_bytes(b"")
    assert printed("costs")["total"]["cost_usd"] == "0"


SCRIPT = """
default:
  - text: I look.
    tools: [{Glob: {pattern: "*"}}]
  - text: Done.
  - text: Done again.
"""


@pytest.mark.slow
def test_ledger_of_a_run_and_its_resume_has_the_sum_of_both(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    project = tmp_path / "project"
    project.mkdir()

    def summary(*arguments: str) -> dict[str, Any]:
        command = [sys.executable, "-P", "-m", "coterie", *arguments]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=60, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    options = "--script", "../script.yaml", "--output-format", "json"
    first = summary("run", "Look around.", *options)
    second = summary("resume", first["session_id"], "Once more.", *options)
    found = printed("costs", first["session_id"])
    assert Decimal(found["total"]["cost_usd"]) == Decimal(first["cost_usd"]) + Decimal(second["cost_usd"]) > 0
    assert [(row["name"], row["requests"], row["estimated"]) for row in found["rows"]] == [("main", 3, 0)]
    assert found["total"]["missed"] > 0, "the second server has an empty cache"

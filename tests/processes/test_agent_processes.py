"""Agents as processes: forked from a warm one, owned by one task each, and heard by mail."""

from decimal import Decimal
from pathlib import Path

import pytest
import trio

from coterie.orchestrator.gate import Limits
from coterie.orchestrator.tree.supervisor import Outcome
from tests.processes.trees import open_tree

SCRIPT = """
scout:
  - tools: [{Bash: {command: "echo found > found.txt; cat found.txt"}}]
  - {text: "It says {{last_tool_result}}"}
default: [{text: "nothing to do", times: always}]
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Path) -> Path:
    """A directory to work in, and a home of its own."""
    del runtime
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


async def test_an_agent_does_its_task_in_its_own_process_and_reports_by_mail(project: Path) -> None:
    with trio.fail_after(60):
        async with open_tree(project, SCRIPT) as tree:
            outcome = await tree.supervisor.run_agent(tree.order("scout", "look around"))
            assert outcome == Outcome(name="scout", incarnation=1, end="done", status=0)
            assert (project / "found.txt").read_text() == "found\n"
            report = (await tree.reports())["scout"]
            assert (report.status, report.turns, report.tool_calls) == ("completed", 2, 1)
            assert "It says found" in report.result
            billed = sum(Decimal(entry["cost_usd"]) for entry in tree.served.requests)
            assert Decimal(report.cost_usd) == billed == tree.supervisor.gate.standing().session.spent.dollars
            assert tree.states("scout") == ["starting", "running", "done"]
            assert tree.supervisor.office.roster.members()["scout"].state == "ended"


async def test_many_agents_at_once_each_report_once(project: Path) -> None:
    with trio.fail_after(60):
        async with open_tree(project, SCRIPT) as tree:
            async with trio.open_nursery() as nursery:
                for number in range(12):
                    nursery.start_soon(tree.supervisor.run_agent, tree.order(f"agent-{number}"))
            reports = await tree.reports()
            assert {name: report.status for name, report in reports.items()} == {
                f"agent-{number}": "completed" for number in range(12)
            }


async def test_a_budget_of_the_session_holds_in_every_process(project: Path) -> None:
    with trio.fail_after(60):
        async with open_tree(project, SCRIPT, limits=Limits(dollars=Decimal("0.0001"))) as tree:
            await tree.supervisor.run_agent(tree.order("scout"))
            report = (await tree.reports())["scout"]
            assert report.status == "blocked"
            assert "$0.0001" in report.summary
            assert tree.served.requests == []

"""`coterie demo`: its parts and its costs."""

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
import trio

from coterie.orchestrator.gateway.cost_report import build_cost_report
from coterie.orchestrator.processes.api_server_process import open_api_server
from coterie.scenarios.runner.environment import ScenarioEnvironment, open_environment
from coterie.scenarios.runner.parsing.scenario_parser import find_scenario, load_scenario
from coterie.session_directory import SessionDirectory

ROOT = Path(__file__).parents[2]
COTERIE = [sys.executable, "-P", "-m", "coterie"]
FORKS = {"facts", "style", "gaps"}
pytestmark = pytest.mark.slow


def demo(*arguments: str) -> str:
    return subprocess.run(
        [*COTERIE, "demo", *arguments], capture_output=True, text=True, check=True, timeout=120
    ).stdout


def test_demo_json_has_the_results_and_costs_of_its_parts() -> None:
    """The demo checks the changed files itself, and fails if the tasks are not done."""
    results = json.loads(demo("--json"))
    assert (results["fix"]["reason"], results["fix"]["turns"]) == ("completed", 6)
    assert results["fix"]["result"].startswith("Fixed.")
    rows = {row["name"]: row for row in results["team"]["costs"]["rows"]}
    assert rows.keys() == {"main", *FORKS}
    assert {rows[name]["parent"] for name in FORKS} == {"main"}
    assert all(rows[name]["cached_share"] > 0.7 for name in FORKS)
    assert results["coordinator"]["reason"] == "completed"


@pytest.mark.soak
def test_demo_prints_the_forks_and_their_costs() -> None:
    output = demo()
    assert all(name in output for name in FORKS)
    assert "with perfect sharing" in output


def test_costs_of_a_fork_fan_out_equal_the_servers_request_log() -> None:
    """The server bills in another process, by its own log."""
    scenario = load_scenario(find_scenario("fork-fan-out"))
    with open_environment(scenario, 0, is_kept=False) as environment:
        billed = trio.run(run_on_own_server, environment, [*COTERIE, "run", scenario.task, *scenario.options, "--bare"])
        assert build_cost_report(SessionDirectory.newest(environment.project).directory).total.cost == billed > 0


async def run_on_own_server(environment: ScenarioEnvironment, command: list[str]) -> Decimal:
    async with open_api_server(environment.script) as server:
        variables = {**environment.variables, "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "any"}
        with trio.fail_after(60):
            await trio.run_process(command, cwd=environment.project, env=variables, capture_stdout=True)
        return sum((Decimal(entry["cost_usd"]) for entry in await server.requests()), Decimal(0))

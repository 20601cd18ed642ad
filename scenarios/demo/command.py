"""`coterie demo`: an agent that fixes a bug, forks (sub-agents) with a table of costs, and a team in a live table."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from coterie.agents.hooks.hook_files import CLAUDE_HOME_VARIABLE
from coterie.agents.loop.model.catalog import known_models
from coterie.orchestrator.cli.commands.costs import print_costs
from coterie.orchestrator.gateway.cost_report import build_cost_report
from coterie.scenarios.runner.environment import ScenarioEnvironment, open_environment, write_files
from coterie.scenarios.runner.expectations import CommandEnds, FileIs
from coterie.scenarios.runner.parsing.scenario_parser import find_scenario, load_scenario
from coterie.scenarios.runner.run_record import ScenarioRun
from coterie.scenarios.runner.scenario import Scenario
from coterie.scenarios.runner.user_commands import own_program
from coterie.session_directory import SessionDirectory

SCRIPT = Path(__file__).with_name("fix.yaml")
TASK = "Invoices with a discount are wrong. Find the bug, fix it, and prove that it is fixed."

FILES = {
    "project/shop/__init__.py": "",
    "project/shop/invoice.py": '''\
"""Totals of invoices."""

from dataclasses import dataclass


@dataclass
class Invoice:
    amounts: list[float]
    discount: float = 0
    """Per cent."""

    def total(self) -> float:
        total = sum(self.amounts)
        return total - self.discount
''',
    "project/tests/test_invoice.py": """\
import unittest

from shop.invoice import Invoice


class TestInvoice(unittest.TestCase):
    def test_discount_is_a_share_of_the_total(self) -> None:
        self.assertEqual(Invoice([60, 140], discount=10).total(), 180)


if __name__ == "__main__":
    unittest.main()
""",
    "home/settings.toml": """\
[permissions]
mode = "acceptEdits"
allow = ["Bash(python3 -m unittest:*)"]
""",
}

PACE = 0.5
"""Delay in seconds before each reply to the coordinator's team, so that a person can follow the live table."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print only the results and costs, as JSON.")
def command(*, as_json: bool) -> None:
    """Show Coterie at work, in three parts, without an API key and without costs.

    1. An agent fixes a bug. 2. An agent starts three forks, which begin with a copy of its conversation; a table shows
    what this costs with the prompt cache. 3. A coordinator, an agent that only delegates, leads a team; on a terminal a
    live table shows the team.

    The agents work in temporary directories, which are deleted at the end. Only the model is replaced: a local server
    sends replies from a script. Exits 1 if a part fails.
    """
    known_models()  # report an invalid table of models before anything starts
    console = Console(quiet=as_json, highlight=False)
    with tempfile.TemporaryDirectory(prefix="coterie-demo-") as directory:
        try:
            results = _run(Path(directory), console, as_json=as_json)
        except RuntimeError as exc:
            raise click.ClickException(str(exc)) from exc
    if as_json:
        click.echo(json.dumps(results))


def _run(directory: Path, console: Console, *, as_json: bool) -> dict[str, Any]:
    console.print(f"[bold]1.[/] an agent in a scratch repository: {TASK}\n")
    fix = _run_bugfix_demo(directory, as_json=as_json)
    forks = load_scenario(find_scenario("fork-fan-out"))
    console.print(f"\n[bold]2.[/] a lead and its forks, each a process: {forks.task}\n")
    with open_environment(forks, 0, is_kept=False) as environment:
        team = _run_shipped(forks, environment, (), as_json=as_json)
        costs = build_cost_report(SessionDirectory.newest(environment.project).directory)
    if not as_json:
        console.print("\n[bold]Costs[/], as `coterie costs` prints them\n")
        print_costs(costs)
    coordinator = load_scenario(find_scenario("coordinator"))
    console.print(f"\n[bold]3.[/] a coordinator and its workers, in a repository: {coordinator.task}\n")
    with open_environment(coordinator, 0, is_kept=False) as environment:
        if not as_json:
            environment.script.write_text(_paced(coordinator.script))
        led = _run_shipped(coordinator, environment, ("--live",), as_json=as_json)
    return {"fix": fix, "team": {**team, "costs": costs.to_mapping()}, "coordinator": led}


def _run_bugfix_demo(directory: Path, *, as_json: bool) -> dict[str, Any]:
    """Run the demo of an agent that fixes a bug below the empty *directory*; return its result, {} without *as_json*.

    Raises `RuntimeError` if the bug is not fixed.
    """
    done = run_bugfix(directory, "json" if as_json else "text", stdout=subprocess.PIPE if as_json else None)
    fixed = (directory / "project/shop/invoice.py").read_text()
    if done.returncode or "/ 100" not in fixed:
        raise RuntimeError(f"the agent did not fix the bug (exit code {done.returncode}); see its output")
    summary: dict[str, Any] = json.loads(done.stdout) if as_json else {}
    return summary


def run_bugfix(root: Path, output_format: str, *, stdout: int | None) -> subprocess.CompletedProcess[str]:
    """Create a project with a bug below *root*, an empty directory; run `coterie run` with a script that fixes it."""
    write_files(root, FILES)
    return subprocess.run(  # noqa: S603 - our own program
        own_program("run", TASK, "--script", str(SCRIPT), "--output-format", output_format),
        cwd=root / "project",
        env={**os.environ, "COTERIE_HOME": str(root / "home"), CLAUDE_HOME_VARIABLE: str(root / "claude")},
        stdout=stdout,
        text=True,
        check=False,
    )


def _run_shipped(
    scenario: Scenario, environment: ScenarioEnvironment, view: tuple[str, ...], *, as_json: bool
) -> dict[str, Any]:
    """Run the task of *scenario* by `coterie run` with the options *view*; return its result, {} without *as_json*.

    Raises `RuntimeError` if the run fails, or an expectation on files or commands is not met.
    """
    shown = ("--output-format", "json") if as_json else view
    done = subprocess.run(  # noqa: S603 - our own program
        own_program("run", scenario.task, *scenario.options, "--script", str(environment.script), *shown),
        cwd=environment.project,
        env=dict(environment.variables),
        stdout=subprocess.PIPE if as_json else None,
        text=True,
        check=False,
    )
    record = ScenarioRun(project=environment.project, sessions=())
    checks = (each for each in scenario.expectations if isinstance(each, FileIs | CommandEnds))
    problem = next((failure.reason for each in checks for failure in each.check(record)), None)
    if done.returncode or problem:
        raise RuntimeError(problem or f"the team has not done its task (exit code {done.returncode})")
    result: dict[str, Any] = json.loads(done.stdout) if as_json else {}
    return result


def _paced(script: str) -> str:
    replies: dict[str, list[Any]] = json.loads(script)
    for listed in replies.values():
        listed[:] = [{"delay": PACE, **(each if isinstance(each, dict) else {"text": each})} for each in listed]
    return json.dumps(replies)

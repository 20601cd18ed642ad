"""`coterie demo`: an agent that fixes a bug, a fork fan-out with its costs, and a team on the board."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from coterie.agents.loop.model.catalog import known_models
from coterie.orchestrator.cli.commands.costs import print_costs
from coterie.orchestrator.gateway.cost_report import build_cost_report
from coterie.scenarios.demo import bugfix
from coterie.scenarios.runner.environment import ScenarioEnvironment, open_environment
from coterie.scenarios.runner.expectations import CommandEnds, FileIs
from coterie.scenarios.runner.parsing.scenario_parser import find_scenario, load_scenario
from coterie.scenarios.runner.run_record import ScenarioRun
from coterie.scenarios.runner.scenario import Scenario
from coterie.session_directory import SessionDirectory

PACE = 0.5
"""Seconds between the replies of the coordinator's team, so that a person can follow the board."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print results and costs as JSON.")
def command(*, as_json: bool) -> None:
    """Run an agent that fixes a bug, a lead with forks and their costs, and a coordinator with its team.

    The coordinator's team is shown on the board of `coterie attach`, if there is a terminal.

    Only the model is replaced: its replies come from a script, over HTTP, from the embedded server.
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
    console.print(f"[bold]1.[/] an agent in a scratch repository: {bugfix.TASK}\n")
    fix = bugfix.run_bugfix_demo(directory, as_json=as_json)
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


def _run_shipped(
    scenario: Scenario, environment: ScenarioEnvironment, view: tuple[str, ...], *, as_json: bool
) -> dict[str, Any]:
    """Run the task of *scenario* by `coterie run`, shown in *view*; return its result if *as_json*.

    Raises `RuntimeError` if the run fails, or an expectation on files or commands is not met.
    """
    arguments = ["run", scenario.task, *scenario.options, "--script", str(environment.script)]
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-P", "-m", "coterie", *arguments, *(("--output-format", "json") if as_json else view)],
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
    return json.dumps({agent: [_with_pace(reply) for reply in listed] for agent, listed in replies.items()})


def _with_pace(reply: Any) -> dict[str, Any]:
    return {"delay": PACE, **(reply if isinstance(reply, dict) else {"text": reply})}

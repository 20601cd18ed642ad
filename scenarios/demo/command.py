"""`coterie demo`: an agent that fixes a bug, five forks with their costs, and a team on a board."""

import json
import tempfile
from pathlib import Path
from typing import Any

import click
import trio
from rich.console import Console

from coterie.agents.loop.model.catalog import known_models
from coterie.orchestrator.cli.commands.costs import print_costs
from coterie.orchestrator.processes.api_server_process import ApiServerFailed
from coterie.orchestrator.processes.process_start import StartFailed
from coterie.scenarios.demo import bugfix, fork_fan_out
from coterie.scenarios.demo.coordinator_demo import coordinator_scenario, run_coordinator


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print what came of it, and the bill, as JSON.")
def command(*, as_json: bool) -> None:
    """Show an agent that fixes a bug, a lead that forks five others, each a process, with the bill, and a coordinator.

    The coordinator's team is shown on the board that `coterie attach` shows, if there is a terminal to draw it on.

    Everything is real but the model: its replies come from a script, over HTTP, from the embedded server.
    """
    known_models()  # a table of models that cannot be read is the user's to mend, before anything starts
    console = Console(quiet=as_json, highlight=False)
    with tempfile.TemporaryDirectory(prefix="coterie-demo-") as place:
        try:
            played = _run(Path(place), console, as_json=as_json)
        except (ApiServerFailed, StartFailed, RuntimeError) as exc:
            raise click.ClickException(str(exc)) from exc
    if as_json:
        click.echo(json.dumps(played))


def _run(place: Path, console: Console, *, as_json: bool) -> dict[str, Any]:
    console.print(f"[bold]1.[/] an agent in a scratch repository: {bugfix.TASK}\n")
    fix = bugfix.run_bugfix_demo(place, as_json=as_json)
    console.print(f"\n[bold]2.[/] a lead there, and five forks of it as processes: {fork_fan_out.TASK}\n")
    done = trio.run(fork_fan_out.run_fan_out, place / "project", place / "home", console)
    if not as_json:
        console.print("\n[bold]What it cost[/], as `coterie costs` shows it\n")
        print_costs(done.report)
        verdict = "equal to" if done.is_equal else "NOT equal to"
        console.print(f"\nour sum is {verdict} the server's own: ${done.billed:f}")
    story = coordinator_scenario()
    console.print(f"\n[bold]3.[/] a coordinator and its workers, in a repository: {story.task}\n")
    led = run_coordinator(story, as_json=as_json)
    return {"fix": fix, "team": done.to_mapping(), "coordinator": led}

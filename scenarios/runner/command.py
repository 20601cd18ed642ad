"""`coterie scenario`: play scripted teams, and see what came of them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from coterie.agents.errors import ConfigInvalid
from coterie.orchestrator.cli.exit_codes import ExitCode, Refused
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import printable
from coterie.scenarios.recording.command import record
from coterie.scenarios.runner.completion import complete_scenario
from coterie.scenarios.runner.flaws import StoryInvalid
from coterie.scenarios.runner.fuzz_command import fuzz_story
from coterie.scenarios.runner.library import find_story, load_all, shipped
from coterie.scenarios.runner.outcome import Outcome, play_story
from coterie.scenarios.runner.reading import load_faults, load_story
from coterie.scenarios.runner.story import Story


@click.group()
def scenario() -> None:
    """Play scripted teams: real processes, files and sockets; only the model follows a script."""


scenario.add_command(record)


@scenario.command()
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...", shell_complete=complete_scenario)
@click.option("--all", "is_all", is_flag=True, help="Play all that ship with Coterie.")
@click.option("--seed", type=int, default=0, show_default=True, help="What the server draws follows from it.")
@click.option("--faults", type=click.Path(path_type=Path), help="Let the faults of FILE happen too.")
@click.option("--repeat", type=click.IntRange(1), default=1, help="Play each so often; all plays must go alike.")
@click.option("--keep", "is_kept", is_flag=True, help="Leave workspace and session where they are, and say where.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/scenarios.md.")
def run(
    *, names: tuple[str, ...], is_all: bool, seed: int, faults: Path | None, repeat: int, is_kept: bool, is_json: bool
) -> None:
    """Play scenarios by NAME, or from a FILE. Ends with 1 if one of them did not go as it must."""
    with _refusing():
        stories = _chosen(names, is_all=is_all)
        stories = [story if faults is None else load_faults(faults, story) for story in stories]
    outcomes = []
    for story in stories:
        outcome = play_story(story, seed, repeat=repeat, is_kept=is_kept)
        outcomes.append(outcome)
        _tell(outcome, faults)
    with open_output():
        if is_json:
            click.echo(msgspec.json.encode({"scenarios": [outcome.to_mapping() for outcome in outcomes]}))
        else:
            passed = sum(outcome.passed for outcome in outcomes)
            click.echo(f"{passed} of {len(outcomes)} scenarios passed")
    sys.exit(ExitCode.DONE if all(outcome.passed for outcome in outcomes) else ExitCode.FAILED)


@scenario.command(name="list")
@click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/scenarios.md.")
def list_scenarios(*, is_json: bool) -> None:
    """List the scenarios that ship with Coterie."""
    with _refusing():
        stories = load_all()
    with open_output():
        if is_json:
            rows = [{"name": story.name, "about": story.about, "file": str(story.source)} for story in stories]
            click.echo(msgspec.json.encode({"scenarios": rows}))
            return
        width = max(len(story.name) for story in stories)
        for story in stories:
            click.echo(f"{story.name:<{width}}  {story.about}")


@scenario.command()
@click.argument("name", metavar="NAME|FILE", shell_complete=complete_scenario)
def show(*, name: str) -> None:
    """Print the file of a scenario, which must be one that can be played."""
    with _refusing():
        path = find_story(name)
        load_story(path)
    with open_output():
        click.echo(printable(path.read_text()), nl=False)


@scenario.command()
@click.argument("name", metavar="NAME|FILE", shell_complete=complete_scenario)
@click.option("--plans", type=click.IntRange(1), default=10, show_default=True, help="How many plans to try.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the first plan; the next has the next number.")
@click.option("--keep", "is_kept", is_flag=True, help="Leave workspaces and sessions where they are, and say where.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/scenarios.md.")
def fuzz(*, name: str, plans: int, seed: int, is_kept: bool, is_json: bool) -> None:
    """Play a scenario under random faults: it must end as done, or say why not, and nothing may be lost or doubled."""
    with _refusing():
        story = load_story(find_story(name))
    fuzz_story(story, plans=plans, seed=seed, is_kept=is_kept, is_json=is_json)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except (StoryInvalid, ConfigInvalid) as exc:
        raise Refused(str(exc)) from exc


def _chosen(names: tuple[str, ...], *, is_all: bool) -> list[Story]:
    """The stories that are meant, all of them read before any is played."""
    paths = [*(shipped() if is_all else ()), *map(find_story, names)]
    if not paths:
        raise ConfigInvalid("scenario", "which one? give names or files, or --all; `coterie scenario list` shows them")
    return [load_story(path) for path in paths]


def _tell(outcome: Outcome, faults: Path | None) -> None:
    """What came of a story, on standard error: a line, and more if it failed."""
    plays = f", {outcome.plays} plays" if outcome.plays > 1 else ""
    verdict = "passed" if outcome.passed else "FAILED"
    click.echo(f"{verdict}  {outcome.story.name}  {outcome.seconds:.1f} s{plays}", err=True)
    shown: tuple[str, ...] = ()
    for failure in outcome.failures:
        where = "" if failure.line is None else f"{outcome.story.source}, line {failure.line}: "
        click.echo(printable(f"  {where}{failure.reason}"), err=True)
        # What is the same for several is shown once.
        for line in failure.around if failure.around != shown else ():
            click.echo(printable(f"    {line}"), err=True)
        shown = failure.around
    if outcome.failures:
        more = "" if faults is None else f" --faults {faults}"
        click.echo(f"  again: coterie scenario run {_name(outcome)} --seed {outcome.seed}{more} --keep", err=True)
    if outcome.place is not None:
        click.echo(f"  kept in {outcome.place}", err=True)


def _name(outcome: Outcome) -> str:
    source = outcome.story.source
    return source.stem if source in shipped() else str(source)

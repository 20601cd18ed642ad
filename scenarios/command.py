"""`coterie scenario`: runs, lists, shows, fuzzes and records scenarios."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
from click.shell_completion import CompletionItem

from coterie.errors import ConfigInvalid
from coterie.orchestrator.cli.completion_candidates import complete_session
from coterie.orchestrator.cli.output import ExitCode, UsageRefused, open_output, sanitize
from coterie.scenarios.recording.record_session import record_session
from coterie.scenarios.runner.fuzz.fuzz_runs import FuzzTrial, count_kinds, find_targets, run_plans
from coterie.scenarios.runner.parsing.parse_errors import ScenarioInvalid
from coterie.scenarios.runner.parsing.scenario_parser import (
    SUFFIX,
    find_scenario,
    load_faults,
    load_scenario,
    load_shipped,
    shipped_files,
)
from coterie.scenarios.runner.scenario import Scenario
from coterie.scenarios.runner.scenario_result import ScenarioResult, run_repeatedly
from coterie.session_directory import SessionDirectory

SCENARIO_FILES = Path(__file__).parents[0] / "stories"
_ABOUT = re.compile(r"^about: *(.+)$", re.MULTILINE)


def complete_scenario(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names with what they are about; what looks like a path is one."""
    if "/" in incomplete or "." in incomplete:
        return [CompletionItem(incomplete, type="file")]
    paths = sorted(path for path in SCENARIO_FILES.glob("*.yaml") if path.stem.startswith(incomplete))
    return [CompletionItem(path.stem, help=_about(path)) for path in paths]


def _about(path: Path) -> str | None:
    found = _ABOUT.search(path.read_text())
    return found[1].strip("\"' ") if found else None


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The file; SESSION.yaml if not given, - prints it."
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def record(*, session: str, output: Path | None, force: bool) -> None:
    """Make a scenario of SESSION, which has ended: its task, what its models said, and what came of it.

    The beginning of its id is enough. What could not be recorded stands at the top of the file; see docs/testing.md.
    """
    try:
        found = SessionDirectory.find(session)
        path = output or Path(f"{found.id}{SUFFIX}")
        is_printed = str(path) == "-"
        if not force and not is_printed:
            _check_free(path)
        recording = record_session(found, "recorded" if is_printed or output is None else path.stem)
        if not is_printed:
            path.write_text(recording.text)
    except ConfigInvalid as exc:
        raise UsageRefused(str(exc)) from exc
    except OSError as exc:
        raise UsageRefused(f"{exc.filename}: {exc.strerror}") from exc
    for doubt in recording.doubts:
        click.echo(sanitize(f"note: {doubt}"), err=True)
    with open_output():
        if is_printed:
            click.echo(recording.text, nl=False)
        else:
            click.echo(f"recorded session {found.id} in {path}; `coterie scenario run {path}` plays it")


def _check_free(path: Path) -> None:
    if path.exists():
        raise ConfigInvalid(str(path), "is there already; --force writes over it")


def fuzz_scenario(story: Scenario, *, plans: int, seed: int, is_kept: bool, is_json: bool) -> None:
    """Try *plans* plans, of *seed* and the numbers behind it, and print what came of them; ends the program."""
    try:
        scene = find_targets(story)
    except ScenarioInvalid as exc:
        raise UsageRefused(str(exc)) from exc
    trials = []
    for trial in run_plans(story, scene, range(seed, seed + plans), is_kept=is_kept):
        trials.append(trial)
        _print_trial(trial)
    passed = sum(not trial.failures for trial in trials)
    with open_output():
        if is_json:
            summary = {
                "name": story.name,
                "passed": passed,
                "struck": count_kinds(trials),
                "plans": [trial.to_mapping() for trial in trials],
            }
            click.echo(msgspec.json.encode(summary))
        else:
            click.echo(summarize_trials(trials))
    sys.exit(ExitCode.DONE if passed == len(trials) else ExitCode.FAILED)


def summarize_trials(trials: list[FuzzTrial]) -> str:
    """How many plans went as they must, and what was struck."""
    passed = sum(not trial.failures for trial in trials)
    struck = ", ".join(f"{count} {kind}" for kind, count in sorted(count_kinds(trials).items())) or "nothing"
    return f"{passed} of {len(trials)} plans passed; struck: {struck}"


def _print_trial(trial: FuzzTrial) -> None:
    verdict = "FAILED" if trial.failures else "passed"
    struck = ", ".join(trial.struck) or "nothing"
    click.echo(f"{verdict}  seed {trial.plan.seed}  {trial.end}  {trial.seconds:.1f} s  {struck}", err=True)
    for failure in trial.failures:
        click.echo(sanitize(f"  {failure.reason}"), err=True)
        for line in failure.around:
            click.echo(sanitize(f"    {line}"), err=True)
    if trial.failures:
        click.echo(sanitize("".join(f"  {line}\n" for line in trial.plan.text.splitlines())), err=True, nl=False)
    if trial.place is not None:
        click.echo(f"  kept in {trial.place}", err=True)


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
    with _usage_errors():
        stories = _load_selected(names, is_all=is_all)
        stories = [story if faults is None else load_faults(faults, story) for story in stories]
    outcomes = []
    for story in stories:
        outcome = run_repeatedly(story, seed, repeat=repeat, is_kept=is_kept)
        outcomes.append(outcome)
        _print_result(outcome, faults)
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
    with _usage_errors():
        stories = load_shipped()
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
    with _usage_errors():
        path = find_scenario(name)
        load_scenario(path)
    with open_output():
        click.echo(sanitize(path.read_text()), nl=False)


@scenario.command()
@click.argument("name", metavar="NAME|FILE", shell_complete=complete_scenario)
@click.option("--plans", type=click.IntRange(1), default=10, show_default=True, help="How many plans to try.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the first plan; the next has the next number.")
@click.option("--keep", "is_kept", is_flag=True, help="Leave workspaces and sessions where they are, and say where.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/scenarios.md.")
def fuzz(*, name: str, plans: int, seed: int, is_kept: bool, is_json: bool) -> None:
    """Play a scenario under random faults: it must end as done, or say why not, and nothing may be lost or doubled."""
    with _usage_errors():
        story = load_scenario(find_scenario(name))
    fuzz_scenario(story, plans=plans, seed=seed, is_kept=is_kept, is_json=is_json)


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except (ScenarioInvalid, ConfigInvalid) as exc:
        raise UsageRefused(str(exc)) from exc


def _load_selected(names: tuple[str, ...], *, is_all: bool) -> list[Scenario]:
    """The stories that are meant, all of them read before any is played."""
    paths = [*(shipped_files() if is_all else ()), *map(find_scenario, names)]
    if not paths:
        raise ConfigInvalid("scenario", "which one? give names or files, or --all; `coterie scenario list` shows them")
    return [load_scenario(path) for path in paths]


def _print_result(outcome: ScenarioResult, faults: Path | None) -> None:
    """What came of a story, on standard error: a line, and more if it failed."""
    plays = f", {outcome.plays} plays" if outcome.plays > 1 else ""
    verdict = "passed" if outcome.passed else "FAILED"
    click.echo(f"{verdict}  {outcome.story.name}  {outcome.seconds:.1f} s{plays}", err=True)
    shown: tuple[str, ...] = ()
    for failure in outcome.failures:
        where = "" if failure.line is None else f"{outcome.story.source}, line {failure.line}: "
        click.echo(sanitize(f"  {where}{failure.reason}"), err=True)
        # What is the same for several is shown once.
        for line in failure.around if failure.around != shown else ():
            click.echo(sanitize(f"    {line}"), err=True)
        shown = failure.around
    if outcome.failures:
        more = "" if faults is None else f" --faults {faults}"
        click.echo(f"  again: coterie scenario run {_name(outcome)} --seed {outcome.seed}{more} --keep", err=True)
    if outcome.place is not None:
        click.echo(f"  kept in {outcome.place}", err=True)


def _name(outcome: ScenarioResult) -> str:
    source = outcome.story.source
    return source.stem if source in shipped_files() else str(source)

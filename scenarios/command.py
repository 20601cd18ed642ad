"""`coterie scenario`: runs, lists, shows, fuzzes and records scenarios (YAML tests of agents, scripted replies)."""

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
from coterie.scenarios.runner.run_record import failure_lines
from coterie.scenarios.runner.scenario_result import ScenarioResult, run_repeatedly
from coterie.session_directory import SessionDirectory

_ABOUT = re.compile(r"^about: *(.+)$", re.MULTILINE)


def complete_scenario(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return shell completions of *incomplete*: names of shipped scenarios with descriptions, or a file path."""
    if "/" in incomplete or "." in incomplete:
        return [CompletionItem(incomplete, type="file")]
    paths = [path for path in shipped_files() if path.stem.startswith(incomplete)]
    found = ((path.stem, _ABOUT.search(path.read_text())) for path in paths)
    return [CompletionItem(name, help=about[1].strip("\"' ") if about else None) for name, about in found]


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write, or - for standard output.  [default: SESSION.yaml in the current directory]",
)
@click.option("--force", is_flag=True, help="Overwrite the output file if it exists.")
def record(*, session: str, output: Path | None, force: bool) -> None:
    """Record SESSION as a scenario file.

    The scenario repeats the session as a test, without calling a model. The file contains the task, the replies of the
    model, and the results that a repetition must have. SESSION must have ended; it is a session id from `coterie list`,
    or the first characters of it. The first lines of the file name what could not be recorded; see docs/testing.md.
    Exits 2 if SESSION is running or cannot be recorded, or if the output file exists.
    """
    try:
        found = SessionDirectory.find(session)
        path = output or Path(f"{found.id}{SUFFIX}")
        is_printed = str(path) == "-"
        if not force and not is_printed and path.exists():
            raise UsageRefused(f"the file {path} exists already; overwrite it with --force")
        recording = record_session(found, "recorded" if is_printed or output is None else path.stem)
        if not is_printed:
            path.write_text(recording.text)
    except ConfigInvalid as exc:
        raise UsageRefused(str(exc)) from exc
    except OSError as exc:
        raise UsageRefused(f"{exc.filename} cannot be read or written: {exc.strerror}; correct this") from exc
    for remark in recording.remarks:
        click.echo(sanitize(f"note: {remark}"), err=True)
    with open_output():
        if is_printed:
            click.echo(recording.text, nl=False)
        else:
            click.echo(f"recorded session {found.id} in {path}; run it with `coterie scenario run {path}`")


def summarize_trials(trials: list[FuzzTrial]) -> str:
    """Return a line with the number of fault plans (fuzz runs) that passed, and of applied faults of each kind."""
    passed = sum(not trial.failures for trial in trials)
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(count_kinds(trials).items())) or "nothing"
    return f"{passed} of {len(trials)} plans passed; faults: {faults}"


def _print_trial(trial: FuzzTrial) -> None:
    verdict = "FAILED" if trial.failures else "passed"
    faults = ", ".join(trial.applied) or "nothing"
    click.echo(f"{verdict}  seed {trial.plan.seed}  {trial.end}  {trial.seconds:.1f} s  {faults}", err=True)
    for failure in trial.failures:
        click.echo(sanitize(f"  {failure.reason}"), err=True)
        for line in failure.around:
            click.echo(sanitize(f"    {line}"), err=True)
    if trial.failures:
        click.echo(sanitize("".join(f"  {line}\n" for line in trial.plan.text.splitlines())), err=True, nl=False)
    if trial.directory is not None:
        click.echo(f"  the files are kept in {trial.directory}", err=True)


@click.group()
def scenario() -> None:
    """Run scenarios: tests of agents, each a YAML file with a task, the replies of the model, and the expected results.

    Only the model is replaced; processes, files and sockets are real.
    """


scenario.add_command(record)


@scenario.command()
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...", shell_complete=complete_scenario)
@click.option("--all", "is_all", is_flag=True, help="Run all scenarios that `coterie scenario list` lists.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the random choices of the embedded API server."
)
@click.option(
    "--faults",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Also inject the faults of the YAML file FILE; see docs/scenarios.md.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Run each scenario this often, and fail if two runs have different logs.",
)
@click.option(
    "--keep", "is_kept", is_flag=True, help="Keep the files of each scenario's last run, and print their directory."
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/scenarios.md.")
def run(
    *, names: tuple[str, ...], is_all: bool, seed: int, faults: Path | None, repeat: int, is_kept: bool, is_json: bool
) -> None:
    """Run scenarios, and print which of them passed.

    Give names from `coterie scenario list`, paths of scenario files (YAML), or --all. A scenario is a test of agents in
    which only the model is replaced: its replies are in the file. Exits 1 if a scenario fails; 2, running none, if one
    is invalid or none is given.
    """
    with _usage_errors():
        paths = [*(shipped_files() if is_all else ()), *map(find_scenario, names)]
        if not paths:
            hint = "pass names, files or --all; `coterie scenario list` prints the names"
            raise ConfigInvalid("scenario", f"no scenario was given; {hint}")
        # All are loaded before any of them runs.
        chosen = [load_scenario(path) for path in paths]
        chosen = [each if faults is None else load_faults(faults, each) for each in chosen]
    results = []
    for each in chosen:
        result = run_repeatedly(each, seed, repeat=repeat, is_kept=is_kept)
        results.append(result)
        _print_result(result, faults)
    with open_output():
        if is_json:
            click.echo(msgspec.json.encode({"scenarios": [result.to_mapping() for result in results]}))
        else:
            passed = sum(result.passed for result in results)
            click.echo(f"{passed} of {len(results)} scenarios passed")
    sys.exit(ExitCode.DONE if all(result.passed for result in results) else ExitCode.FAILED)


@scenario.command(name="list")
@click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/scenarios.md.")
def list_scenarios(*, is_json: bool) -> None:
    """List the built-in scenarios with their descriptions.

    A scenario is a test of agents in which the replies of the model come from a file.
    """
    with _usage_errors():
        shipped = load_shipped()
    with open_output():
        if is_json:
            rows = [{"name": each.name, "about": each.about, "file": str(each.source)} for each in shipped]
            click.echo(msgspec.json.encode({"scenarios": rows}))
            return
        width = max(len(each.name) for each in shipped)
        for each in shipped:
            click.echo(f"{each.name:<{width}}  {each.about}")


@scenario.command()
@click.argument("name", metavar="NAME|FILE", shell_complete=complete_scenario)
def show(*, name: str) -> None:
    """Check a scenario and print its file.

    Prints the YAML file if it is valid; otherwise prints its errors with line numbers and exits with 2. Give the NAME
    of a scenario from `coterie scenario list`, or the path of a scenario FILE.
    """
    with _usage_errors():
        path = find_scenario(name)
        load_scenario(path)
    with open_output():
        click.echo(sanitize(path.read_text()), nl=False)


@scenario.command()
@click.argument("name", metavar="NAME|FILE", shell_complete=complete_scenario)
@click.option("--plans", type=click.IntRange(1), default=10, show_default=True, help="Number of runs.")
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of the faults of the first run; each next run has a seed that is greater by 1.",
)
@click.option("--keep", "is_kept", is_flag=True, help="Keep the files of each run, and print their directory.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/scenarios.md.")
def fuzz(*, name: str, plans: int, seed: int, is_kept: bool, is_json: bool) -> None:
    """Run a scenario several times with random faults.

    Give the NAME of a scenario from `coterie scenario list`, or the path of a scenario FILE. It first runs without
    faults; if that fails, exits 2. Each further run has other faults, such as a failed model call or a killed process.
    A run fails if the agents neither finish the task nor report why they could not, if a message is lost, if a message,
    tool call or task is done twice, if it costs too much, or if a process or file is left behind. Prints the faults
    that took effect. Exits 1 if a run fails.
    """
    with _usage_errors():
        chosen = load_scenario(find_scenario(name))
        targets = find_targets(chosen)
    trials = []
    for trial in run_plans(chosen, targets, range(seed, seed + plans), is_kept=is_kept):
        trials.append(trial)
        _print_trial(trial)
    passed = sum(not trial.failures for trial in trials)
    with open_output():
        if is_json:
            summary = {
                "name": chosen.name,
                "passed": passed,
                "struck": count_kinds(trials),
                "plans": [trial.to_mapping() for trial in trials],
            }
            click.echo(msgspec.json.encode(summary))
        else:
            click.echo(summarize_trials(trials))
    sys.exit(ExitCode.DONE if passed == len(trials) else ExitCode.FAILED)


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except (ScenarioInvalid, ConfigInvalid) as exc:
        raise UsageRefused(str(exc)) from exc


def _print_result(result: ScenarioResult, faults: Path | None) -> None:
    """Print a result to stderr; if it failed, also its failures and a command to repeat the run with *faults*."""
    runs = f", {result.runs} runs" if result.runs > 1 else ""
    verdict = "passed" if result.passed else "FAILED"
    click.echo(f"{verdict}  {result.scenario.name}  {result.seconds:.1f} s{runs}", err=True)
    for line in failure_lines(result.failures, result.scenario.source):
        click.echo(sanitize(line), err=True)
    if result.failures:
        source = result.scenario.source
        name = source.stem if source in shipped_files() else source
        more = "" if faults is None else f" --faults {faults}"
        click.echo(f"  run it again: coterie scenario run {name} --seed {result.seed}{more} --keep", err=True)
    if result.directory is not None:
        click.echo(f"  the files are kept in {result.directory}", err=True)

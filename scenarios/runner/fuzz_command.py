"""`coterie scenario fuzz`: play a story under random faults."""

import sys

import click
import msgspec

from coterie.orchestrator.cli.exit_codes import ExitCode, Refused
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import printable
from coterie.scenarios.runner.flaws import StoryInvalid
from coterie.scenarios.runner.fuzzing import Trial, count_kinds, look_at_scene, try_plans
from coterie.scenarios.runner.story import Story


def fuzz_story(story: Story, *, plans: int, seed: int, is_kept: bool, is_json: bool) -> None:
    """Try *plans* plans, of *seed* and the numbers behind it, and print what came of them; ends the program."""
    try:
        scene = look_at_scene(story)
    except StoryInvalid as exc:
        raise Refused(str(exc)) from exc
    trials = []
    for trial in try_plans(story, scene, range(seed, seed + plans), is_kept=is_kept):
        trials.append(trial)
        _tell(trial)
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
            click.echo(summary_of(trials))
    sys.exit(ExitCode.DONE if passed == len(trials) else ExitCode.FAILED)


def summary_of(trials: list[Trial]) -> str:
    """How many plans went as they must, and what was struck."""
    passed = sum(not trial.failures for trial in trials)
    struck = ", ".join(f"{count} {kind}" for kind, count in sorted(count_kinds(trials).items())) or "nothing"
    return f"{passed} of {len(trials)} plans passed; struck: {struck}"


def _tell(trial: Trial) -> None:
    verdict = "FAILED" if trial.failures else "passed"
    struck = ", ".join(trial.struck) or "nothing"
    click.echo(f"{verdict}  seed {trial.plan.seed}  {trial.end}  {trial.seconds:.1f} s  {struck}", err=True)
    for failure in trial.failures:
        click.echo(printable(f"  {failure.reason}"), err=True)
        for line in failure.around:
            click.echo(printable(f"    {line}"), err=True)
    if trial.failures:
        click.echo(printable("".join(f"  {line}\n" for line in trial.plan.text.splitlines())), err=True, nl=False)
    if trial.place is not None:
        click.echo(f"  kept in {trial.place}", err=True)

"""`coterie run`: give a task to an agent, from a shell."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from coterie.agents.models import known_models
from coterie.orchestrator.cli.exit_codes import ExitCode

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


class NoModel(click.ClickException):
    """There is nothing to ask."""

    exit_code = ExitCode.MODEL_UNREACHABLE


@click.command()
@click.argument("task", required=False)
@click.option("-p", "--print", "only_result", is_flag=True, help="Print the result alone, and no progress.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--model", default="sonnet", show_default=True, help="A model's id or alias.")
@click.option("--max-turns", type=click.IntRange(1), default=200, show_default=True)
@click.option(
    "--permission-mode",
    type=click.Choice(["default", "acceptEdits", "bypassPermissions"]),
    default="default",
    show_default=True,
    help="default: read inside the directory; acceptEdits: edit there too; bypassPermissions: do anything you may.",
)
@click.option("--script", type=click.Path(path_type=Path), help="Play the model from FILE on the embedded server.")
def run(
    *,
    task: str | None,
    only_result: bool,
    output_format: str,
    model: str,
    max_turns: int,
    permission_mode: Any,
    script: Path | None,
) -> None:
    """Run TASK with one agent in the current directory; `-`, or no TASK, reads it from standard input."""
    chosen = known_models().get(model)
    if script is None and not any(os.environ.get(name) for name in KEYS):
        raise NoModel("no model to ask: set ANTHROPIC_API_KEY, or give --script FILE to play one without a key")
    words = _task(task)
    # These bring the SDK along, and neither `--help` nor a mistake should wait for it.
    from coterie.orchestrator.cli.report import Report  # noqa: PLC0415
    from coterie.orchestrator.cli.work import work  # noqa: PLC0415
    from coterie.orchestrator.running import Job  # noqa: PLC0415

    job = Job(task=words, project=Path.cwd(), model=chosen, max_turns=max_turns, mode=permission_mode, script=script)
    report = Report(is_json=output_format == "json", only_result=only_result)
    done = work(job, report.tell)
    report.finish(done)
    sys.exit(report.exit_code(done))


def _task(task: str | None) -> str:
    if task in (None, "-"):
        task = "" if sys.stdin.isatty() else sys.stdin.read()
    if not task or not task.strip():
        raise click.UsageError('a task is needed: coterie run "find the bug in a.py", or on standard input')
    return task.strip()

"""`coterie run` and `coterie resume`: give a task to an agent, or take one up again, from a shell."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import click

from coterie.agents.models import known_models
from coterie.orchestrator.cli.exit_codes import ExitCode
from coterie.orchestrator.session import Session

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


class NoModel(click.ClickException):
    """There is nothing to ask."""

    exit_code = ExitCode.MODEL_UNREACHABLE


@attrs.frozen(kw_only=True)
class _Options:
    """What both commands take."""

    only_result: bool
    output_format: str
    max_turns: int
    permission_mode: Any
    script: Path | None


def _shared_options(function: Callable[..., None]) -> Callable[..., None]:
    options = (
        click.option("-p", "--print", "only_result", is_flag=True, help="Print the result alone, and no progress."),
        click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True),
        click.option("--max-turns", type=click.IntRange(1), default=200, show_default=True),
        click.option(
            "--permission-mode",
            type=click.Choice(["default", "acceptEdits", "bypassPermissions"]),
            default="default",
            show_default=True,
            help="default: read in the directory; acceptEdits: edit there too; bypassPermissions: anything you may.",
        ),
        click.option("--script", type=click.Path(path_type=Path), help="Play the model from FILE, without a key."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command()
@click.argument("task", required=False)
@click.option("--model", default="sonnet", show_default=True, help="A model's id or alias.")
@_shared_options
def run(*, task: str | None, model: str, **shared: Any) -> None:
    """Run TASK with one agent in the current directory; `-`, or no TASK, reads it from standard input."""
    options = _Options(**shared)
    known_models().get(model)
    _need_a_model(options)
    words = _from_stdin() if task in (None, "-") else task
    if not words or not words.strip():
        raise click.UsageError('a task is needed: coterie run "find the bug in a.py", or on standard input')
    _work(options, task=words.strip(), project=Path.cwd(), model=model)


@click.command()
@click.argument("session")
@click.argument("message", required=False)
@_shared_options
def resume(*, session: str, message: str | None, **shared: Any) -> None:
    """Take SESSION up where it stopped, or go on with a new MESSAGE; the beginning of its id is enough.

    The agent sees its conversation byte for byte as it was. A tool call that was cut short is never run again: the
    agent is told that it was interrupted.
    """
    options = _Options(**shared)
    _need_a_model(options)
    found = Session.resume(session)
    _work(options, task=(message or "").strip(), project=found.project, model=found.model, session=found)


def _need_a_model(options: _Options) -> None:
    if options.script is None and not any(os.environ.get(name) for name in KEYS):
        raise NoModel("no model to ask: set ANTHROPIC_API_KEY, or give --script FILE to play one without a key")


def _from_stdin() -> str:
    return "" if sys.stdin.isatty() else sys.stdin.read()


def _work(options: _Options, *, model: str, **facts: Any) -> None:
    # These bring the SDK along, and neither `--help` nor a mistake should wait for it.
    from coterie.orchestrator.cli.report import Report  # noqa: PLC0415
    from coterie.orchestrator.cli.work import work  # noqa: PLC0415
    from coterie.orchestrator.running import Job  # noqa: PLC0415

    chosen = known_models().get(model)
    job = Job(model=chosen, max_turns=options.max_turns, mode=options.permission_mode, script=options.script, **facts)
    report = Report(is_json=options.output_format == "json", only_result=options.only_result)
    done = work(job, report.tell)
    report.finish(done)
    sys.exit(report.exit_code(done))

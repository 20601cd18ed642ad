"""`coterie hooks`: lists hooks and approves those of a project."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
import click

from coterie.agents.hooks.hook_files import HookSelection, HookSource, count_hooks, select_hooks
from coterie.orchestrator.cli.output import ExitCode, UsageRefused, escape_invisible, sanitize
from coterie.orchestrator.cli.project_approvals import (
    approve_hook_sources,
    describe_hooks,
    describe_sources,
    find_hook_sources,
)
from coterie.orchestrator.cli.shared_options import json_option
from coterie.orchestrator.settings.settings_loader import load_settings
from coterie.process_identity import is_called_by_agent


@click.group()
def hooks() -> None:
    """List and approve hooks: shell commands that Coterie runs when an agent does something, such as a tool call."""


@hooks.command("list", short_help="List the hooks that apply here.")
@json_option()
def list_hooks(*, is_json: bool) -> None:
    """List the hooks that apply in the current directory: their files, commands and events.

    A hook is a shell command that Coterie runs when an agent does something, such as a tool call. Hooks of a project
    run only after `coterie hooks approve`; until then they are listed as not approved. Exits 1 if a file with hooks has
    an invalid entry.
    """
    settings = load_settings(Path.cwd(), {}, os.environ)
    sources = find_hook_sources(Path.cwd(), settings)
    held = select_hooks(Path.cwd(), sources)
    flaws = [flaw for source in sources for flaw in source.problems]
    notes = [source.note for source in sources if source.note is not None]
    if is_json:
        rows = [
            {**attrs.asdict(hook), "owner": source.owner, "runs": settings.hooks.enabled and source not in held.waiting}
            for source in sources
            for hook in source.hooks
        ]
        click.echo(json.dumps({"hooks": rows, "flaws": flaws, "notes": notes}))
    else:
        for line in _lines(sources, held):
            click.echo(line)
        if not settings.hooks.enabled:
            click.echo("the setting hooks.enabled is false, so no hook runs; set it to true to run hooks", err=True)
        elif notice := held.notice():
            click.echo(sanitize(notice), err=True)
        for word in (*notes, *flaws):
            click.echo(sanitize(word), err=True)
    sys.exit(ExitCode.FAILED if flaws else ExitCode.DONE)


@hooks.command("approve", short_help="Allow the hooks of this project to run.")
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Approve without asking; the commands are still printed.")
def approve_hooks(*, is_sure: bool) -> None:
    """Allow the hooks of the project in the current directory to run from now on.

    A hook is a shell command that Coterie runs when an agent does something, such as a tool call. Prints all commands
    that are not approved yet, then asks. Approve again after a command has changed; a change of a script that it starts
    is not noticed. Exits 4 if you answer no, 2 if there is no terminal to ask on and no --yes.
    """
    if is_called_by_agent():
        raise UsageRefused("an agent cannot approve hooks; ask the user to run `coterie hooks approve`")
    project = Path.cwd()
    waiting = select_hooks(project, find_hook_sources(project, load_settings(project, {}, os.environ))).waiting
    if not waiting:
        click.echo("no hook needs approval")
        return
    for line in describe_sources(waiting):
        click.echo(line)
    if not is_sure and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageRefused("cannot ask for approval without a terminal; approve the hooks shown above with --yes")
    if is_sure or click.confirm("Allow these hooks to run from now on?", err=True):
        approve_hook_sources(project, waiting)
        click.echo(f"approved: {sanitize(', '.join(count_hooks(list(waiting))))}")
    else:
        sys.exit(ExitCode.APPROVAL_REFUSED)


def _lines(sources: Iterable[HookSource], held: HookSelection) -> Iterator[str]:
    found = False
    for source in sources:
        if source.hooks:
            found = True
            state = "not approved" if source in held.waiting else source.owner
            yield f"{escape_invisible(str(source.path))}  ({state})"
            yield from describe_hooks(source)
    if not found:
        yield "no hooks"

"""`coterie hooks`: which commands run when something happens, where they stand, and whether they may."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
from filelock import Timeout

from coterie.orchestrator.cli.exit_codes import ExitCode, Refused
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import escaped, printable
from coterie.orchestrator.hooks.approval import Holding, approve, holding
from coterie.orchestrator.hooks.sources import HookSource, counted, hook_sources, kind_source
from coterie.orchestrator.settings import Settings, load_settings
from coterie.orchestrator.whose_shell import is_of_an_agent


@click.group()
def hooks() -> None:
    """Show and approve the commands that run when something happens to an agent."""


@hooks.command("list")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def list_hooks(*, is_json: bool) -> None:
    """List the hooks that were found for the current directory, by file, and whether they run.

    Ends with 1 if a file has a flaw.
    """
    settings = load_settings(Path.cwd(), {}, os.environ)
    sources = found_sources(Path.cwd(), settings)
    held = holding(Path.cwd(), sources)
    flaws = [flaw for source in sources for flaw in source.flaws]
    notes = [source.note for source in sources if source.note is not None]
    with open_output():
        if is_json:
            rows = _rows(sources, held, is_enabled=settings.hooks.enabled)
            click.echo(json.dumps({"hooks": rows, "flaws": flaws, "notes": notes}))
        else:
            for line in _lines(sources, held):
                click.echo(line)
            if not settings.hooks.enabled:
                click.echo("hooks.enabled is false: none of them runs", err=True)
            elif notice := held.notice():
                click.echo(printable(notice), err=True)
            for word in (*notes, *flaws):
                click.echo(printable(word), err=True)
    sys.exit(ExitCode.FAILED if flaws else ExitCode.DONE)


@hooks.command("approve")
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask; what is approved is printed all the same.")
def approve_hooks(*, is_sure: bool) -> None:
    """Let the hooks of this project run, as they are now; each change of them has to be approved again.

    Shows every command first. What a command starts, such as a script of the project, is not part of what you approve.
    """
    if is_of_an_agent():
        raise Refused("only the user can approve hooks, and no agent")
    project = Path.cwd()
    waiting = holding(project, found_sources(project, load_settings(project, {}, os.environ))).waiting
    if not waiting:
        click.echo("there is nothing to approve")
        return
    for line in _shown(waiting):
        click.echo(line)
    if not is_sure and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused("nobody can be asked here; --yes approves what is shown")
    if is_sure or click.confirm("Let these commands run from now on?", err=True):
        _approve(project, waiting)
        click.echo(f"approved: {printable(', '.join(counted(list(waiting))))}")
    else:
        sys.exit(ExitCode.APPROVAL_REFUSED)


def ask_about_hooks(project: Path, settings: Settings) -> None:
    """Ask once whether the hooks of *project* may run; a no is asked about again by the next run."""
    waiting = holding(project, found_sources(project, settings)).waiting if settings.hooks.enabled else ()
    if not waiting:
        return
    click.echo("This project brings commands along that run while agents work in it:", err=True)
    for line in _shown(waiting):
        click.echo(line, err=True)
    if click.confirm("Let them run from now on?", err=True):
        _approve(project, waiting)


def found_sources(project: Path, settings: Settings) -> list[HookSource]:
    """All files with hooks that hold in *project*, those of its kinds of agents too. Blocks on the disk."""
    from coterie.agents.definitions import load_definitions  # noqa: PLC0415 - brings trio along, for this alone

    kinds = map(kind_source, load_definitions(project).by_name.values())
    return [*hook_sources(project, settings.hooks), *(source for source in kinds if source.hooks)]


def _approve(project: Path, waiting: Sequence[HookSource]) -> None:
    try:
        approve(project, waiting)
    except (OSError, Timeout) as exc:
        raise Refused(f"the approval could not be kept: {exc}") from exc


def _lines(sources: Iterable[HookSource], held: Holding) -> Iterator[str]:
    found = False
    for source in sources:
        if source.hooks:
            found = True
            state = "not approved" if source in held.waiting else source.owner
            yield f"{escaped(str(source.path))}  ({state})"
            yield from _commands(source)
    if not found:
        yield "there are no hooks"


def _shown(sources: Iterable[HookSource]) -> Iterator[str]:
    for source in sources:
        yield escaped(str(source.path))
        yield from _commands(source)


def _commands(source: HookSource) -> Iterator[str]:
    """Whole and escaped: nothing that is approved may hide."""
    for hook in source.hooks:
        matcher = f" {escaped(hook.matcher)}" if hook.matcher else ""
        command = escaped(hook.command).replace("\n", "\n    ")
        yield f"  {hook.event}{matcher} ({hook.timeout:g} s): {command}"


def _rows(sources: Iterable[HookSource], held: Holding, *, is_enabled: bool) -> list[dict[str, Any]]:
    return [
        {**attrs.asdict(hook), "owner": source.owner, "runs": is_enabled and source not in held.waiting}
        for source in sources
        for hook in source.hooks
    ]

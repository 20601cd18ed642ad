"""`coterie hooks`: lists hooks and approves those of a project."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
from filelock import Timeout

from coterie.agents.hooks.hook_files import (
    HookSelection,
    HookSource,
    approve_sources,
    count_hooks,
    definition_source,
    hook_sources,
    select_hooks,
)
from coterie.agents.settings import Settings
from coterie.orchestrator.cli.output import ExitCode, UsageRefused, escape_invisible, open_output, sanitize
from coterie.orchestrator.control.client import is_called_by_agent
from coterie.orchestrator.settings.settings_loader import load_settings


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
    sources = find_hook_sources(Path.cwd(), settings)
    held = select_hooks(Path.cwd(), sources)
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
                click.echo(sanitize(notice), err=True)
            for word in (*notes, *flaws):
                click.echo(sanitize(word), err=True)
    sys.exit(ExitCode.FAILED if flaws else ExitCode.DONE)


@hooks.command("approve")
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask; what is approved is printed all the same.")
def approve_hooks(*, is_sure: bool) -> None:
    """Let the hooks of this project run, as they are now; each change of them has to be approved again.

    Shows every command first. What a command starts, such as a script of the project, is not part of what you approve.
    """
    if is_called_by_agent():
        raise UsageRefused("only the user can approve hooks, and no agent")
    project = Path.cwd()
    waiting = select_hooks(project, find_hook_sources(project, load_settings(project, {}, os.environ))).waiting
    if not waiting:
        click.echo("there is nothing to approve")
        return
    for line in _shown(waiting):
        click.echo(line)
    if not is_sure and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageRefused("nobody can be asked here; --yes approves what is shown")
    if is_sure or click.confirm("Let these commands run from now on?", err=True):
        _approve(project, waiting)
        click.echo(f"approved: {sanitize(', '.join(count_hooks(list(waiting))))}")
    else:
        sys.exit(ExitCode.APPROVAL_REFUSED)


def confirm_hooks(project: Path, settings: Settings) -> None:
    """Ask once whether the hooks of *project* may run; a no is asked about again by the next run."""
    waiting = select_hooks(project, find_hook_sources(project, settings)).waiting if settings.hooks.enabled else ()
    if not waiting:
        return
    click.echo("This project brings commands along that run while agents work in it:", err=True)
    for line in _shown(waiting):
        click.echo(line, err=True)
    if click.confirm("Let them run from now on?", err=True):
        _approve(project, waiting)


def find_hook_sources(project: Path, settings: Settings) -> list[HookSource]:
    """All files with hooks that hold in *project*, those of its kinds of agents too. Blocks on the disk."""
    from coterie.agents.definitions.store import load_definitions  # noqa: PLC0415 - brings trio along, for this alone

    kinds = map(definition_source, load_definitions(project).by_name.values())
    return [*hook_sources(project, settings.hooks), *(source for source in kinds if source.hooks)]


def _approve(project: Path, waiting: Sequence[HookSource]) -> None:
    try:
        approve_sources(project, waiting)
    except (OSError, Timeout) as exc:
        raise UsageRefused(f"the approval could not be kept: {exc}") from exc


def _lines(sources: Iterable[HookSource], held: HookSelection) -> Iterator[str]:
    found = False
    for source in sources:
        if source.hooks:
            found = True
            state = "not approved" if source in held.waiting else source.owner
            yield f"{escape_invisible(str(source.path))}  ({state})"
            yield from _commands(source)
    if not found:
        yield "there are no hooks"


def _shown(sources: Iterable[HookSource]) -> Iterator[str]:
    for source in sources:
        yield escape_invisible(str(source.path))
        yield from _commands(source)


def _commands(source: HookSource) -> Iterator[str]:
    """Whole and escaped: nothing that is approved may hide."""
    for hook in source.hooks:
        matcher = f" {escape_invisible(hook.matcher)}" if hook.matcher else ""
        command = escape_invisible(hook.command).replace("\n", "\n    ")
        yield f"  {hook.event}{matcher} ({hook.timeout:g} s): {command}"


def _rows(sources: Iterable[HookSource], held: HookSelection, *, is_enabled: bool) -> list[dict[str, Any]]:
    return [
        {**attrs.asdict(hook), "owner": source.owner, "runs": is_enabled and source not in held.waiting}
        for source in sources
        for hook in source.hooks
    ]

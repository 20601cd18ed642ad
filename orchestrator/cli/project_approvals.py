"""Approval of what a project brings along: included instruction files, hooks and MCP servers."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click
from filelock import Timeout

from coterie.agents.definitions.store import load_definitions
from coterie.agents.hooks.hook_files import HookSource, approve_sources, definition_source, hook_sources, select_hooks
from coterie.agents.settings import Settings
from coterie.memory.instructions.loader import read_instructions
from coterie.orchestrator.cli.output import UsageRefused, escape_invisible, sanitize
from coterie.orchestrator.mcp.mcp_servers import approve_servers, load_servers
from coterie.paths import project_root
from coterie.trusted_files import TrustedFiles


def confirm_includes(project: Path) -> None:
    """Ask about each file that nobody has approved yet; a yes is kept for all later runs in the project.

    Raises `ConfigInvalid` and `OSError` as the record of approvals does.
    """
    approved = TrustedFiles.of(project_root(project))
    refused: set[Path] = set()
    # An approved file may name further ones.
    while waiting := [path for path in read_instructions(project).unapproved if path not in refused]:
        for path in waiting:
            if click.confirm(
                f"An instruction file of this project includes {sanitize(str(path))}. Allow it?", err=True
            ):
                approved.approve(path)
            else:
                refused.add(path)


def confirm_servers(project: Path) -> None:
    """Ask about each MCP server of the project that waits; a yes is kept until it is changed. Raises as the above."""
    for server in load_servers(project).waiting:
        where = sanitize(server.config.where)
        if click.confirm(f"The MCP server {server.name} of this project is {where}. May it start?", err=True):
            approve_servers(project, [server])


def confirm_hooks(project: Path, settings: Settings) -> None:
    """Ask once whether the hooks of *project* may run; a no is asked about again by the next run."""
    waiting = select_hooks(project, find_hook_sources(project, settings)).waiting if settings.hooks.enabled else ()
    if not waiting:
        return
    click.echo("This project brings commands along that run while agents work in it:", err=True)
    for line in describe_sources(waiting):
        click.echo(line, err=True)
    if click.confirm("Let them run from now on?", err=True):
        approve_hook_sources(project, waiting)


def find_hook_sources(project: Path, settings: Settings) -> list[HookSource]:
    """All files with hooks that hold in *project*, those of its kinds of agents too. Blocks on the disk."""
    kinds = map(definition_source, load_definitions(project).by_name.values())
    return [*hook_sources(project, settings.hooks), *(source for source in kinds if source.hooks)]


def approve_hook_sources(project: Path, waiting: Sequence[HookSource]) -> None:
    """Let the hooks of *waiting* run in *project*, as they are now. Blocks. Raises `UsageRefused`."""
    try:
        approve_sources(project, waiting)
    except (OSError, Timeout) as exc:
        raise UsageRefused(f"the approval could not be kept: {exc}") from exc


def describe_sources(sources: Iterable[HookSource]) -> Iterator[str]:
    """Lines that show all hooks of *sources*, by file."""
    for source in sources:
        yield escape_invisible(str(source.path))
        yield from describe_hooks(source)


def describe_hooks(source: HookSource) -> Iterator[str]:
    """Lines that show the hooks of *source*, whole and escaped: nothing that is approved may hide."""
    for hook in source.hooks:
        matcher = f" {escape_invisible(hook.matcher)}" if hook.matcher else ""
        command = escape_invisible(hook.command).replace("\n", "\n    ")
        yield f"  {hook.event}{matcher} ({hook.timeout:g} s): {command}"

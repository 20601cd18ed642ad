"""Prompts for the user's approval of files that a project's instructions include, and of its hooks and MCP servers."""

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
    """Prompt for each unapproved file that the project's instruction files include; store each yes for later runs.

    Raises `ConfigInvalid` and `OSError` if the stored approvals cannot be read or written.
    """
    approved = TrustedFiles.of(project_root(project))
    refused: set[Path] = set()
    # An approved file may include further files.
    while waiting := [path for path in read_instructions(project).unapproved if path not in refused]:
        for path in waiting:
            if click.confirm(
                f"An instruction file of this project includes {sanitize(str(path))}. Allow this file?", err=True
            ):
                approved.approve(path)
            else:
                refused.add(path)


def confirm_servers(project: Path) -> None:
    """Prompt for each unapproved MCP server of the project; store a yes, valid until the server's entry changes.

    Raises `ConfigInvalid` and `OSError` if the stored approvals cannot be read or written.
    """
    for server in load_servers(project).waiting:
        where = sanitize(server.config.where)
        if click.confirm(f"This project has the MCP server {server.name}: {where}. Allow agents to use it?", err=True):
            approve_servers(project, [server])


def confirm_hooks(project: Path, settings: Settings) -> None:
    """Show all unapproved hooks of *project*, prompt once for all; a yes is stored, after a no the next run asks."""
    waiting = select_hooks(project, find_hook_sources(project, settings)).waiting if settings.hooks.enabled else ()
    if not waiting:
        return
    click.echo("This project has hooks, which run commands while agents work in it:", err=True)
    for line in describe_sources(waiting):
        click.echo(line, err=True)
    if click.confirm("Allow these hooks to run from now on?", err=True):
        approve_hook_sources(project, waiting)


def find_hook_sources(project: Path, settings: Settings) -> list[HookSource]:
    """Return all hook files that apply to *project*, and the agent types that define hooks. Blocks on the disk."""
    kinds = map(definition_source, load_definitions(project).by_name.values())
    return [*hook_sources(project, settings.hooks), *(source for source in kinds if source.hooks)]


def approve_hook_sources(project: Path, waiting: Sequence[HookSource]) -> None:
    """Store that the hooks in *waiting* may run in *project* until they change. Raises `UsageRefused` if it cannot."""
    try:
        approve_sources(project, waiting)
    except (OSError, Timeout) as exc:
        raise UsageRefused(f"the approval of hooks could not be saved: {exc}; correct this and approve again") from exc


def describe_sources(sources: Iterable[HookSource]) -> Iterator[str]:
    """Yield the path of each file in *sources* and, after it, the text of each hook in the file."""
    for source in sources:
        yield escape_invisible(str(source.path))
        yield from describe_hooks(source)


def describe_hooks(source: HookSource) -> Iterator[str]:
    """Yield the text of each hook of *source*: event, matcher, timeout and full command, with unprintables escaped."""
    for hook in source.hooks:
        matcher = f" {escape_invisible(hook.matcher)}" if hook.matcher else ""
        command = escape_invisible(hook.command).replace("\n", "\n    ")
        yield f"  {hook.event}{matcher} ({hook.timeout:g} s): {command}"

"""Options, store lookup and completion shared by the `coterie memory` commands."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TypeVar, get_args

import click
from click.shell_completion import CompletionItem

from coterie.agents.definitions.store import load_definitions
from coterie.agents.runtime.setup.memory_scopes import project_memory
from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.memory.errors import MemoryRefused, StoreError
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.scopes import AgentScopeName, MemoryScope, ScopeName, agent_scope
from coterie.orchestrator.cli import shared_options
from coterie.orchestrator.cli.completion_candidates import complete_agent_type
from coterie.orchestrator.cli.output import translate_errors
from coterie.orchestrator.settings.settings_loader import load_settings
from coterie.paths import home_directory, project_directory

json_option = shared_options.json_option("memory")
_OPTIONS = (
    click.option(
        "--scope",
        type=click.Choice(get_args(ScopeName)),
        help="Without --agent, only auto is possible: your memories of this project. With --agent, give user (yours, "
        "for all projects), project (shared with all users of this project) or local (yours, for this project only).  "
        "[default: auto; with --agent, the scope in the agent's file; if it names none, --scope is required]",
    ),
    click.option(
        "--agent",
        "kind",
        metavar="TYPE",
        shell_complete=complete_agent_type,
        help="Use the memories of this agent type, one that `coterie agents list` shows.",
    ),
    click.option(
        "--dir",
        "directory",
        metavar="D",
        type=click.Path(path_type=Path),
        help="Use the memories in directory D. Cannot be used with --scope or --agent.",
    ),
)


def scope_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--scope`, `--agent` and `--dir` to *command*; they are resolved to the argument *place*."""

    @wraps(command)
    def with_place(*, scope: ScopeName | None, kind: str | None, directory: Path | None, **others: object) -> None:
        command(place=find_scope(scope, kind, directory), **others)

    for option in reversed(_OPTIONS):
        with_place = option(with_place)
    return with_place


def find_scope(scope: ScopeName | None, kind: str | None, directory: Path | None) -> MemoryScope:
    """Return the memories that `--scope`, `--agent` and `--dir` select. Raises `UsageError` and `ConfigInvalid`."""
    if directory is not None:
        if scope is not None or kind is not None:
            raise click.UsageError("--dir cannot be used with --scope or --agent; leave them out")
        if not directory.is_dir():
            raise ConfigInvalid("--dir", f"{directory} is not a directory; give a directory of memories")
        return MemoryScope(scope="auto", directory=directory.absolute())
    if scope in (None, "auto") and kind is None:
        return project_memory(Path.cwd(), load_settings(Path.cwd(), {}, os.environ))
    if kind is None:
        raise click.UsageError(f"--scope {scope} needs an agent type; give --agent TYPE")
    if scope == "auto":
        raise click.UsageError("--scope auto cannot be used with --agent; leave one of them out")
    return agent_scope(
        kind, scope or _definition_scope(kind), home=home_directory(), project=project_directory(Path.cwd())
    )


@contextmanager
def open_store(place: MemoryScope) -> Iterator[MemoryStore]:
    """Open the store at *place*, and translate its errors.

    Within the block an error that the user can correct becomes `UsageRefused`, an error of the store or the machine
    another `ClickException`.
    """
    with translate_errors(user=(MemoryRefused,), machine=(StoreError,), path=place.directory):
        yield MemoryStore.at(place.directory, Clock.from_environment())


def _definition_scope(kind: str) -> AgentScopeName:
    """Return the memory scope, such as `user`, of agent type *kind*. Raises `ConfigInvalid` if either is missing."""
    definition = load_definitions(Path.cwd()).get(kind)
    if definition.memory is None:
        raise ConfigInvalid("--agent", f"{kind} has no memory in its definition; add `memory` to it, or give --scope")
    return definition.memory


Item = TypeVar("Item")


def complete_memory(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return completions: names of the selected memories' files, without `.md`."""
    names = (path.removesuffix(".md") for path in _find_candidates(ctx, MemoryStore.paths))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_change(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return completions: ids of changes of the selected memories, newest first, then ids of groups of changes."""
    changes = list(reversed(_find_candidates(ctx, MemoryStore.changes)))
    groups = dict.fromkeys(change.group for change in changes if change.group is not None)
    items = [CompletionItem(change.id, help=f"{change.action} {change.path}") for change in changes]
    return [item for item in (*items, *map(CompletionItem, groups)) if item.value.startswith(incomplete)]


def _find_candidates(ctx: click.Context, find: Callable[[MemoryStore], Iterable[Item]]) -> list[Item]:
    """Return what *find* finds in the memories that the options select; empty if these are invalid or unreadable."""
    try:
        place = find_scope(*(ctx.params.get(name) for name in ("scope", "kind", "directory")))
        with open_store(place) as store:
            return list(find(store))
    except (ConfigInvalid, click.ClickException):
        return []

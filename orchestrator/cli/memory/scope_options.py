"""Options, store lookup and completion shared by the `coterie memory` commands."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TypeVar, get_args

import click
import msgspec
from click.shell_completion import CompletionItem

from coterie.agents.definitions.store import load_definitions
from coterie.agents.runtime.setup.memory_scopes import project_memory
from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.memory.errors import MemoryRefused, StoreError
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.scopes import AgentScopeName, MemoryScope, ScopeName, agent_scope
from coterie.orchestrator.cli.completion_candidates import complete_agent_type
from coterie.orchestrator.cli.output import UsageRefused, sanitize
from coterie.orchestrator.settings.settings_loader import load_settings
from coterie.paths import home_directory, project_directory

json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/memory.md.")
_OPTIONS = (
    click.option(
        "--scope",
        type=click.Choice(get_args(ScopeName)),
        help="Whose memories: auto are those of this project, the default; the others are an agent's, see --agent.",
    ),
    click.option(
        "--agent", "kind", metavar="TYPE", shell_complete=complete_agent_type, help="The kind of agent they belong to."
    ),
    click.option(
        "--dir",
        "directory",
        metavar="D",
        type=click.Path(path_type=Path),
        help="A directory of memories, wherever it is.",
    ),
)


def scope_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give *command* the options `--scope`, `--agent` and `--dir`; it gets what they mean as *place*."""

    @wraps(command)
    def with_place(*, scope: ScopeName | None, kind: str | None, directory: Path | None, **others: object) -> None:
        command(place=find_scope(scope, kind, directory), **others)

    for option in reversed(_OPTIONS):
        with_place = option(with_place)
    return with_place


def find_scope(scope: ScopeName | None, kind: str | None, directory: Path | None) -> MemoryScope:
    """The memories that a user means. Raises `UsageError` for options that do not go together, `ConfigInvalid`."""
    if directory is not None:
        if scope is not None or kind is not None:
            raise click.UsageError("--dir names the memories already; leave --scope and --agent out")
        return _given(directory)
    if scope in (None, "auto") and kind is None:
        return project_memory(Path.cwd(), load_settings(Path.cwd(), {}, os.environ))
    if kind is None:
        raise click.UsageError(f"--scope {scope} belongs to a kind of agent; say which with --agent TYPE")
    if scope == "auto":
        raise click.UsageError("--scope auto belongs to no kind of agent; leave --agent out, or give another scope")
    return agent_scope(
        kind, scope or _definition_scope(kind), home=home_directory(), project=project_directory(Path.cwd())
    )


@contextmanager
def open_store(place: MemoryScope) -> Iterator[MemoryStore]:
    """The store at *place*.

    Within the block what the user must mend is raised as `UsageRefused`, what the store or the machine refuses as
    another `ClickException`.
    """
    try:
        yield MemoryStore.at(place.directory, Clock.from_environment())
    except MemoryRefused as exc:
        raise UsageRefused(sanitize(str(exc))) from exc
    except StoreError as exc:
        raise click.ClickException(sanitize(str(exc))) from exc
    except BrokenPipeError:
        raise  # nobody reads standard output any more: that is no failure of the store
    except OSError as exc:
        raise click.ClickException(sanitize(f"{exc.filename or place.directory}: {exc.strerror}")) from exc


def print_json(value: object) -> None:
    """One line of JSON, at once."""
    click.echo(msgspec.json.encode(value))


def _given(directory: Path) -> MemoryScope:
    if not directory.is_dir():
        raise ConfigInvalid("--dir", f"{directory} is no directory; give one that holds memories")
    return MemoryScope(scope="auto", directory=directory.absolute())


def _definition_scope(kind: str) -> AgentScopeName:
    """The scope that the definition of *kind* names. Raises `ConfigInvalid` if there is no such kind, or no scope."""
    definition = load_definitions(Path.cwd()).get(kind)
    if definition.memory is None:
        raise ConfigInvalid("--agent", f"{kind} keeps no memories: its definition has no `memory`; or give --scope")
    return definition.memory


Item = TypeVar("Item")


def complete_memory(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The files of memories, without their suffix."""
    names = (path.removesuffix(".md") for path in _find_candidates(ctx, MemoryStore.paths))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_change(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of changes and of groups, the newest first."""
    changes = list(reversed(_find_candidates(ctx, MemoryStore.changes)))
    groups = dict.fromkeys(change.group for change in changes if change.group is not None)
    items = [CompletionItem(change.id, help=f"{change.action} {change.path}") for change in changes]
    return [item for item in (*items, *map(CompletionItem, groups)) if item.value.startswith(incomplete)]


def _find_candidates(ctx: click.Context, find: Callable[[MemoryStore], Iterable[Item]]) -> list[Item]:
    """What there is to offer: nothing where there is no such store, or it cannot be read."""
    try:
        place = find_scope(*(ctx.params.get(name) for name in ("scope", "kind", "directory")))
        with open_store(place) as store:
            return list(find(store))
    except (ConfigInvalid, click.ClickException):
        return []

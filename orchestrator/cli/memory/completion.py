"""What a shell offers for `coterie memory`: memories, and changes."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import click
from click.shell_completion import CompletionItem

from coterie.agents.errors import ConfigInvalid
from coterie.memory.store.store import Store
from coterie.orchestrator.cli.memory.place import find_place, open_store

Item = TypeVar("Item")


def complete_memory(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The files of memories, without their suffix."""
    names = (path.removesuffix(".md") for path in _find(ctx, Store.paths))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_change(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of changes and of groups, the newest first."""
    changes = list(reversed(_find(ctx, Store.changes)))
    groups = dict.fromkeys(change.group for change in changes if change.group is not None)
    items = [CompletionItem(change.id, help=f"{change.action} {change.path}") for change in changes]
    return [item for item in (*items, *map(CompletionItem, groups)) if item.value.startswith(incomplete)]


def _find(ctx: click.Context, find: Callable[[Store], Iterable[Item]]) -> list[Item]:
    """What there is to offer: nothing where there is no such store, or it cannot be read."""
    try:
        place = find_place(*(ctx.params.get(name) for name in ("scope", "kind", "directory")))
        with open_store(place) as store:
            return list(find(store))
    except (ConfigInvalid, click.ClickException):
        return []

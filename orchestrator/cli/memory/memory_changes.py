"""`coterie memory log`, `diff` and `undo`: changes of memories."""

from collections.abc import Sequence

import click

from coterie.memory.errors import StoreBusy
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.scopes import MemoryScope
from coterie.orchestrator.cli.memory.browse import find_memory
from coterie.orchestrator.cli.memory.change_text import change_line, change_row, diff_lines
from coterie.orchestrator.cli.memory.scope_options import (
    complete_change,
    complete_memory,
    json_option,
    open_store,
    print_json,
    scope_options,
)
from coterie.orchestrator.cli.output import UsageRefused, open_output, sanitize
from coterie.suggestions import did_you_mean

AUTHOR = Author(by="user", why="memory undo")


@click.command()
@click.argument("name", required=False, shell_complete=complete_memory)
@click.option("--limit", "-n", type=click.IntRange(1), metavar="N", help="Only the newest N.")
@scope_options
@json_option
def log(*, name: str | None, limit: int | None, place: MemoryScope, is_json: bool) -> None:
    """List the changes of all memories, or of the one called NAME, the newest first."""
    with open_output(), open_store(place) as store:
        changes = _history(store)
        if name is not None:
            path = _path_of(store, name, changes)
            changes = [change for change in changes if change.path == path]
        newest = changes[::-1][:limit]
        if is_json:
            print_json([change_row(change) for change in newest])
            return
        if not newest:
            click.echo(sanitize(f"nothing was changed yet in {place.directory}"), err=True)
        for change in newest:
            click.echo(change_line(change))


@click.command()
@click.argument("id_", metavar="[ID]", required=False, shell_complete=complete_change)
@scope_options
@json_option
def diff(*, id_: str | None, place: MemoryScope, is_json: bool) -> None:
    """Show what a change did, or all changes of a group such as a dream; without ID the one that `undo` takes back."""
    with open_output(), open_store(place) as store:
        changes = _select_changes(_history(store), id_)
        if is_json:
            print_json([change_row(change) for change in changes])
            return
        for change in changes:
            click.echo(click.style(change_line(change).lstrip(), bold=True))
            for line in diff_lines(change):
                click.echo(line)


@click.command()
@click.argument("id_", metavar="[ID]", required=False, shell_complete=complete_change)
@scope_options
@json_option
def undo(*, id_: str | None, place: MemoryScope, is_json: bool) -> None:
    """Take a change back, or all changes of a group such as a dream; without ID the last one that was not made by hand.

    It is a change itself, so it can be undone. Ends with 1, and changes nothing, if others have changed the same
    memory since.
    """
    with open_output(), open_store(place) as store:
        chosen = _select_changes(store.changes(), id_)
        # The last change alone may be a part of a group: half a dream is nobody's wish.
        made = store.undo(id_ or chosen[-1].group or chosen[-1].id, AUTHOR)
        if is_json:
            print_json([change_row(change) for change in made])
            return
        for change in made:
            click.echo(change_line(change))
        click.echo(f"`coterie memory undo {made[-1].group or made[-1].id}` takes this back", err=True)


def _history(store: MemoryStore) -> list[MemoryChange]:
    """All changes, oldest first, with what was changed by hand since the last one; that is recorded now."""
    if store.changes():
        try:
            store.detect_external_changes()
        except (OSError, StoreBusy) as exc:
            click.echo(sanitize(f"what was changed by hand is not shown: {exc}"), err=True)
    return store.changes()


def _path_of(store: MemoryStore, name: str, changes: Sequence[MemoryChange]) -> str:
    """The path of the memory *name*, also if it has been deleted. Raises `UsageRefused` if there never was one."""
    past = {change.path for change in changes}
    return next((path for path in (name, f"{name}.md") if path in past), None) or find_memory(store, name)


def _select_changes(changes: Sequence[MemoryChange], id_: str | None) -> list[MemoryChange]:
    """The changes that *id_* means, oldest first. Raises `UsageRefused` if it means none."""
    if not changes:
        raise UsageRefused("nothing was changed yet")
    if id_ is None:
        # What was written past the store is noticed whenever somebody looks: that it is noticed last means nothing.
        last = next((change for change in reversed(changes) if change.author.by != "outside"), changes[-1])
        return [change for change in changes if last.group is not None and change.group == last.group] or [last]
    found = [change for change in changes if id_ in (change.id, change.group)]
    if not found:
        groups = {change.group for change in changes if change.group is not None}
        known = groups if not id_.isdecimal() else ()
        hint = did_you_mean(id_, known) if known else f"there are 1 to {changes[-1].id}"
        raise UsageRefused(sanitize(f"there is no change {id_!r}; {hint}"))
    return found

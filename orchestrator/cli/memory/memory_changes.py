"""`coterie memory log`, `diff` and `undo`: lists, shows and undoes changes of memories."""

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
    scope_options,
)
from coterie.orchestrator.cli.output import UsageRefused, print_result, sanitize
from coterie.suggestions import did_you_mean


@click.command()
@click.argument("name", required=False, shell_complete=complete_memory)
@click.option(
    "--limit", "-n", type=click.IntRange(1), metavar="N", help="List only the newest N changes.  [default: all]"
)
@scope_options
@json_option
def log(*, name: str | None, limit: int | None, place: MemoryScope, is_json: bool) -> None:
    """List the changes of memory NAME or of all, newest first: id, time, author, file. Exits 1 after a file error."""
    with open_store(place) as store:
        changes = _history(store)
        if name is not None:
            past = {change.path for change in changes}
            # Also a memory that was deleted.
            path = next((path for path in (name, f"{name}.md") if path in past), None) or find_memory(store, name)
            changes = [change for change in changes if change.path == path]
        newest = changes[::-1][:limit]
        rows, empty = [change_row(change) for change in newest], f"no changes in {place.directory} yet"
        print_result(rows, map(change_line, newest), is_json=is_json, empty=empty)


@click.command()
@click.argument("id_", metavar="[ID]", required=False, shell_complete=complete_change)
@scope_options
@json_option
def diff(*, id_: str | None, place: MemoryScope, is_json: bool) -> None:
    """Show the lines that a change of memories removed and added.

    ID is a change from `coterie memory log` [default: the newest change by an agent or a command; edits by hand are
    passed over]. A dream is a run in which a model tidies the memories: an ID such as dream-3f2a selects all changes of
    one, and so does the default if the newest change is part of one. Exits 1 if the changes cannot be read.
    """
    with open_store(place) as store:
        changes = _select_changes(_history(store), id_)
        lines = (line for change in changes for line in diff_lines(change))
        print_result([change_row(change) for change in changes], lines, is_json=is_json)


@click.command()
@click.argument("id_", metavar="[ID]", required=False, shell_complete=complete_change)
@scope_options
@json_option
def undo(*, id_: str | None, place: MemoryScope, is_json: bool) -> None:
    """Restore the text that a memory had before a change.

    ID is a change from `coterie memory log` [default: the newest change by an agent or a command; edits by hand are
    passed over]. A dream is a run in which a model tidies the memories: an ID such as dream-3f2a selects all changes of
    one, and so does the default if the newest change is part of one.

    An undo is a change itself: its id is printed, and a second undo without ID undoes it. Exits 1, and undoes nothing,
    if a file has changed again after the change ID (of a dream: any of its files) or cannot be read or written.
    """
    with open_store(place) as store:
        chosen = _select_changes(store.changes(), id_)
        # The last change may be one of a group, and half a dream must not be undone.
        made = store.undo(id_ or chosen[-1].group or chosen[-1].id, Author(by="user", why="memory undo"))
        print_result([change_row(change) for change in made], map(change_line, made), is_json=is_json)
        if not is_json:
            click.echo(f"undo this with `coterie memory undo {made[-1].group or made[-1].id}`", err=True)


def _history(store: MemoryStore) -> list[MemoryChange]:
    """Return all recorded changes of *store*, oldest first; first detect and record edits that were made by hand."""
    if store.changes():
        try:
            store.detect_external_changes()
        except (OSError, StoreBusy) as exc:
            click.echo(sanitize(f"changes made by hand are not listed: {exc}"), err=True)
    return store.changes()


def _select_changes(changes: Sequence[MemoryChange], id_: str | None) -> list[MemoryChange]:
    """Return changes with id or group *id_*; if None, the newest not by hand (or its group). Raises `UsageRefused`."""
    if not changes:
        raise UsageRefused("the memory has no changes yet; `coterie memory list` shows its files")
    if id_ is None:
        # Changes made by hand are recorded when they are detected, so being recorded last does not make them the last.
        last = next((change for change in reversed(changes) if change.author.by != "outside"), changes[-1])
        return [change for change in changes if last.group is not None and change.group == last.group] or [last]
    found = [change for change in changes if id_ in (change.id, change.group)]
    if not found:
        groups = {change.group for change in changes if change.group is not None}
        known = groups if not id_.isdecimal() else ()
        hint = did_you_mean(id_, known) if known else f"the changes are 1 to {changes[-1].id}"
        raise UsageRefused(sanitize(f"unknown change {id_!r}; {hint}"))
    return found

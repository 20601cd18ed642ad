"""`coterie memory snapshot`: what a kind of agent knows, kept in the project for others to begin with."""

import secrets
from pathlib import Path

import click

from coterie.agents.project import project_directory
from coterie.clock import Clock
from coterie.memory.store.change import Author
from coterie.memory.store.index import INDEX
from coterie.memory.store.places import MemoryPlace, snapshot_of
from coterie.memory.store.store import Applied, Edit, Store
from coterie.orchestrator.cli.memory.place import json_option, open_store, place_options, print_json
from coterie.orchestrator.cli.memory.wording import change_row
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import printable

AUTHOR = Author(by="user", why="memory snapshot")


@click.command()
@place_options
@json_option
def snapshot(*, place: MemoryPlace, is_json: bool) -> None:
    """Copy the memories of a kind of agent, see --agent, to where the project can commit them.

    An agent of that kind whose own memory is empty begins with them. What is in the snapshot and not in the memory is
    deleted there.
    """
    if place.kind is None:
        raise click.UsageError("a snapshot is of a kind of agent; say which with --agent TYPE")
    target = snapshot_of(place.kind, project_directory(Path.cwd()))
    with open_output(), open_store(place) as store:
        done = _copy(store, Store.at(target, Clock.from_environment()))
        if is_json:
            changes = [change_row(change) for change in done.changes]
            dropped = [{"path": edit.path, "reason": reason} for edit, reason in done.dropped]
            print_json({"directory": str(target), "memories": store.paths(), "changes": changes, "dropped": dropped})
            return
        click.echo(printable(f"{target}: {len(store.paths())} memories, {len(done.changes)} changes"))
        for edit, reason in done.dropped:
            click.echo(printable(f"{edit.path} was left out: {reason}"), err=True)


def _copy(source: Store, target: Store) -> Applied:
    """Make *target* hold what *source* does, as one group of changes."""
    wanted = {path: source.read(path) for path in (INDEX, *source.paths())}
    there = {path: target.read(path) for path in (INDEX, *target.paths())}
    edits = [
        Edit(path=path, base=there.get(path), content=wanted.get(path))
        for path in dict.fromkeys((*wanted, *there))
        if wanted.get(path) != there.get(path)
    ]
    return target.apply(edits, AUTHOR, group=f"snapshot-{secrets.token_hex(3)}")

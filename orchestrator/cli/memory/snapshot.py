"""`coterie memory snapshot`: copies the memories of an agent type into the project."""

import secrets
from pathlib import Path

import click

from coterie.clock import Clock
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import ApplyResult, MemoryStore
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.scopes import MemoryScope, snapshot_directory
from coterie.memory.store.transaction import PendingEdit
from coterie.orchestrator.cli.memory.change_text import change_row
from coterie.orchestrator.cli.memory.scope_options import json_option, open_store, scope_options
from coterie.orchestrator.cli.output import print_json, sanitize
from coterie.paths import project_directory


@click.command()
@scope_options
@json_option
def snapshot(*, place: MemoryScope, is_json: bool) -> None:
    """Copy the memories of an agent type to .coterie/agent-memory-snapshots/TYPE in the project, to commit them.

    --agent is required; --dir and --scope auto cannot be used. When another user starts an agent of this type without
    memories, it begins with a copy of the snapshot. Memories that no longer exist are deleted from the snapshot. Exits
    1 after a file error.
    """
    if place.kind is None:
        raise click.UsageError("a snapshot needs an agent type; give --agent TYPE")
    target = snapshot_directory(place.kind, project_directory(Path.cwd()))
    with open_store(place) as store:
        done = _copy(store, MemoryStore.at(target, Clock.from_environment()))
        if is_json:
            changes = [change_row(change) for change in done.changes]
            dropped = [{"path": edit.path, "reason": reason} for edit, reason in done.dropped]
            print_json({"directory": str(target), "memories": store.paths(), "changes": changes, "dropped": dropped})
            return
        click.echo(sanitize(f"{target}: {len(store.paths())} memories, {len(done.changes)} changes"))
        for edit, reason in done.dropped:
            click.echo(sanitize(f"{edit.path} was skipped: {reason}"), err=True)


def _copy(source: MemoryStore, target: MemoryStore) -> ApplyResult:
    """Copy all memories of *source* to *target*, delete all others there; the changes get one common group id."""
    wanted = {path: source.read(path) for path in (INDEX, *source.paths())}
    there = {path: target.read(path) for path in (INDEX, *target.paths())}
    edits = [
        PendingEdit(path=path, base=there.get(path), content=wanted.get(path))
        for path in dict.fromkeys((*wanted, *there))
        if wanted.get(path) != there.get(path)
    ]
    author = Author(by="user", why="memory snapshot")
    return target.apply(edits, author, group=f"snapshot-{secrets.token_hex(3)}")

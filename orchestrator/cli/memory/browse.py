"""`coterie memory list` and `show`: lists memories and shows one."""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import click

from coterie.agents.runtime.setup.memory_scopes import existing_scopes
from coterie.clock import Clock
from coterie.memory.errors import MemoryRefused
from coterie.memory.store.memory_entry import MemoryEntry, parse_entry
from coterie.memory.store.memory_index import load_index
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.scopes import MemoryScope
from coterie.orchestrator.cli.memory.change_text import change_line, change_row
from coterie.orchestrator.cli.memory.scope_options import (
    complete_memory,
    json_option,
    open_store,
    scope_options,
)
from coterie.orchestrator.cli.output import (
    UsageRefused,
    format_age,
    one_line,
    print_json,
    print_result,
    sanitize,
)
from coterie.orchestrator.cli.text_table import align_columns
from coterie.orchestrator.settings.settings_loader import load_settings
from coterie.suggestions import did_you_mean

HEAD_BYTES = 65_536
"""Number of bytes at the start of a memory file that are read for its name and description."""


@attrs.frozen(kw_only=True)
class MemoryRow:
    """Row of `coterie memory list`: one memory file, with its name, type, description, size and time of change."""

    path: str
    topic: MemoryEntry
    bytes: int
    modified: float

    def to_json(self, place: MemoryScope) -> dict[str, object]:
        """Return the row as a JSON object for `--json`; *place* is the scope and directory of the memory."""
        return {
            "path": self.path,
            "name": self.topic.name,
            "type": self.topic.type,
            "description": self.topic.description,
            "bytes": self.bytes,
            "modified": self.modified,
            "notes": list(self.topic.notes),
            "scope": place.scope,
            "agent": place.kind,
            "directory": str(place.directory),
        }

    def cells(self, now: float) -> tuple[str, ...]:
        """Return the cells of the table row; *now*, in seconds since 1970, gives the age of the file."""
        age = format_age(max(0.0, now - self.modified))
        return (one_line(self.path, 40), self.topic.type or "-", age, f"{self.bytes:,}")

    @property
    def summary(self) -> str:
        """Description of the memory, after its name if the file is named differently."""
        name, description = self.topic.name, self.topic.description
        is_named = self.path.removesuffix(".md").rpartition("/")[2] == name
        return description if is_named and description else f"{name}: {description}" if description else name


@click.command("list")
@click.option(
    "--all", "is_whole", is_flag=True, help="List those of this project and all agent types, whatever is chosen below."
)
@scope_options
@json_option
def list_memories(*, place: MemoryScope, is_whole: bool, is_json: bool) -> None:
    """List memories (Markdown files) with file, type, age, size, description. Exits 1 after a file error."""
    places = existing_scopes(Path.cwd(), load_settings(Path.cwd(), {}, os.environ)) if is_whole else [place]
    rows: list[dict[str, object]] = []
    for one in places:
        with open_store(one) as store:
            found = list(_memory_rows(store))
            if is_json:
                rows += [memory.to_json(one) for memory in found]
            else:
                _print(one, found, has_heading=is_whole)
            _warn(store)
    if is_json:
        print_json(rows)


@click.command()
@click.argument("name", required=False, shell_complete=complete_memory)
@scope_options
@json_option
def show(*, name: str | None, place: MemoryScope, is_json: bool) -> None:
    """Show the text of memory NAME and its last change. Without NAME, show the index.

    The index is the list of memories that an agent starts with; if it is too long, only the part that agents see is
    shown. NAME is a file from `coterie memory list`, with or without `.md`, or the `name` in the first lines of the
    file. Exits 1 if it cannot be read.
    """
    with open_store(place) as store:
        if name is not None:
            _show_memory(store, find_memory(store, name), is_json=is_json)
            return
        loaded = load_index(store.index())
        facts = {"path": INDEX, "text": loaded.text, "warning": loaded.warning}
        text = [sanitize(loaded.text).rstrip("\n")] if loaded.text else []
        print_result(facts, text, is_json=is_json, empty=f"no index in {store.directory}")
        if not is_json:
            _warn(store)


def find_memory(store: MemoryStore, name: str) -> str:
    """Return the path of memory *name* (file or `name` field). Raises `UsageRefused` if unknown or ambiguous."""
    paths = store.paths()
    for path in (name, f"{name}.md"):
        if path == INDEX or path in paths:
            return path
    named = {path: _topic(store, path).name for path in paths}
    found = [path for path, own in named.items() if own.casefold() == name.casefold()]
    if len(found) > 1:
        raise UsageRefused(sanitize(f"{name!r} is the name of {' and '.join(found)}; give the file name"))
    if not found:
        known = {path.removesuffix(".md") for path in paths} | set(named.values())
        raise UsageRefused(sanitize(f"unknown memory {name!r}; {did_you_mean(name, known)}"))
    return found[0]


def _memory_rows(store: MemoryStore) -> Iterator[MemoryRow]:
    for path in store.paths():
        try:
            status = (store.directory / path).lstat()
        except FileNotFoundError:
            continue  # deleted after it was listed
        yield MemoryRow(path=path, topic=_topic(store, path), bytes=status.st_size, modified=status.st_mtime)


def _topic(store: MemoryStore, path: str) -> MemoryEntry:
    """Return name, type and description of the memory file *path*; if unreadable, the reason as description."""
    try:
        return parse_entry(store.read(path, limit=HEAD_BYTES) or b"", path)
    except OSError as exc:
        reason = f"cannot be read: {exc.strerror}"
    except MemoryRefused as exc:
        reason = exc.reason
    return attrs.evolve(parse_entry(b"", path), notes=(reason,), description=f"({reason})")


def _print(place: MemoryScope, found: Sequence[MemoryRow], *, has_heading: bool) -> None:
    if has_heading:
        click.echo(sanitize(f"{place.title}  {place.directory}"))
    if not found:
        click.echo(sanitize(f"no memories in {place.directory}"), err=True)
        return
    now = Clock.from_environment().now()
    lines = align_columns(("FILE", "TYPE", "AGE", "BYTES"), [memory.cells(now) for memory in found], left=2)
    room = max(30, shutil.get_terminal_size().columns - len(lines[0]) - 2)
    for line, words in zip(lines, ["DESCRIPTION", *(memory.summary for memory in found)], strict=True):
        click.echo(f"{line}  {one_line(words, room)}")


def _warn(store: MemoryStore) -> None:
    """Print a warning on standard error if the index (`MEMORY.md`) is longer than the part that agents get."""
    if (warning := load_index(store.index()).warning) is not None:
        click.echo(sanitize(f"{store.directory / INDEX}: {warning}"), err=True)


def _show_memory(store: MemoryStore, path: str, *, is_json: bool) -> None:
    content = store.read(path)
    if content is None:
        raise UsageRefused(sanitize(f"{path} does not exist; `coterie memory list` lists all memories"))
    topic = parse_entry(content, path)
    last = next((change for change in reversed(store.changes()) if change.path == path), None)
    if is_json:
        facts = {"path": path, "text": content.decode("utf-8", "replace")}
        print_json({**facts, **attrs.asdict(topic), "last_change": None if last is None else change_row(last)})
        return
    click.echo(sanitize(content.decode("utf-8", "replace")).rstrip("\n"))
    for note in topic.notes:
        click.echo(sanitize(f"{path}: {note}"), err=True)
    if last is not None:
        click.echo(click.style(f"last change: {change_line(last)}", dim=True))

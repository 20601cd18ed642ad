"""A store of memories in one directory, with an index and a change log, safe for several writing processes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from coterie.clock import Clock
from coterie.files import replace_file
from coterie.memory.errors import BaseChanged, MemoryRefused
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.change_log import read_batches
from coterie.memory.store.confined_directory import open_confined
from coterie.memory.store.memory_index import is_memory
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.store_lock import lock_store, open_history_directory
from coterie.memory.store.transaction import PendingEdit, StoreTransaction
from coterie.memory.store.undo import plan_undo


@attrs.frozen(kw_only=True)
class ApplyResult:
    """Result of `MemoryStore.apply`: the recorded changes, and the edits that were not made."""

    changes: tuple[MemoryChange, ...]
    dropped: tuple[tuple[PendingEdit, str], ...]
    """Edits that were not made, each with the reason."""


@attrs.frozen
class MemoryStore:
    """Memories as Markdown files in one directory, with an index (`MEMORY.md`) and a change log.

    Paths are relative to the directory. Every method blocks, opens the directory again, and raises `OSError`, and
    `MemoryRefused` for a path that is not allowed or contains a link. Methods that write wait for the lock and may
    raise `StoreBusy`. If a write raises, nothing has changed; if it returns, the change is durable. Exception: if the
    disk fails to write and also to roll back, the next writer completes the change.

    The index follows the memories: a new memory gets a line unless a line links to it, and a deleted memory loses its
    line.
    """

    directory: Path
    clock: Clock = attrs.field(factory=Clock.from_environment)

    @classmethod
    def at(cls, directory: Path, clock: Clock | None = None) -> "MemoryStore":
        """Return the store in *directory*; the first write creates the directory."""
        return cls(directory) if clock is None else cls(directory, clock)

    def paths(self) -> list[str]:
        """List the memories, sorted: Markdown files except the index, logs, links and names that begin with a dot."""
        with open_confined(self.directory) as root:
            return [] if root is None else [path for path in root.list_files() if is_memory(path)]

    def read(self, path: str, *, limit: int | None = None) -> bytes | None:
        """Return the content of the file *path*, at most *limit* bytes; None if there is no such file."""
        with open_confined(self.directory) as root:
            return None if root is None else root.read(path, limit)

    def index(self) -> str:
        """Return the text of the index file; empty if the file does not exist."""
        return (self.read(INDEX) or b"").decode(errors="replace")

    def write(self, path: str, content: bytes, author: Author, *, base: bytes | None) -> MemoryChange:
        """Write *content* to *path*, whose present content must be *base* (None: no file); return the recorded change.

        Raises `BaseChanged` if the file has other content than *base*, and `MemoryRefused` if *content* is not text, is
        too large or contains a secret that *base* does not contain.
        """
        return self._write(PendingEdit(path=path, base=base, content=content), author)

    def delete(self, path: str, author: Author, *, base: bytes) -> MemoryChange:
        """Delete the file *path*; return the change. Raises `BaseChanged` if its content is not *base*."""
        return self._write(PendingEdit(path=path, base=base, content=None), author)

    def apply(self, edits: Sequence[PendingEdit], author: Author, *, group: str) -> ApplyResult:
        """Make all valid *edits* in one transaction: after a crash all of them or none. Return the others as dropped.

        All changes get the id *group*, for a common undo. New memories get an index line, deleted ones lose theirs.
        An edit of the index itself is compared with the index before all edits.
        """
        dropped: list[tuple[PendingEdit, str]] = []
        with self._transaction(author) as writing:
            for edit in edits:
                try:
                    writing.prepare(edit, group)
                except (BaseChanged, MemoryRefused) as exc:
                    dropped.append((edit, str(exc)))
            changes = [change for change in writing.commit() if change.author.by != "outside"]
        return ApplyResult(changes=tuple(changes), dropped=tuple(dropped))

    def changes(self) -> list[MemoryChange]:
        """Return all changes in the change log of the store, oldest first.

        An edit that bypassed the store is included once `detect_external_changes` or a later write has recorded it.
        """
        return [change for batch in self.batches() for change in batch]

    def batches(self) -> list[list[MemoryChange]]:
        """Return all changes in the change log of the store, oldest first, as one list for each transaction."""
        with open_confined(self.directory) as root:
            if root is None:
                return []
            with open_history_directory(root) as history:
                try:
                    return [] if history is None else read_batches(history)
                except FileNotFoundError:
                    return []

    def detect_external_changes(self) -> list[MemoryChange]:
        """Record all edits that bypassed the store in its change log, and return them. Reads the whole store."""
        with self._transaction(Author(by="outside")) as writing:
            writing.record_external_changes()
            return writing.commit()

    def undo(self, id_or_group: str, author: Author) -> list[MemoryChange]:
        """Undo the change or the group of changes with the id *id_or_group*; return the new changes that do this.

        The new changes can be undone too. Raises `CannotUndo` for an unknown id, or if a file has changed since.
        """
        with self._transaction(author) as writing:
            history = [change for batch in writing.held.history.batches() for change in batch]
            steps = plan_undo(history, id_or_group, writing.held.root.read)
            writing.reverse(steps)
            return [change for change in writing.commit() if change.author.by != "outside"]

    def _write(self, edit: PendingEdit, author: Author) -> MemoryChange:
        with self._transaction(author) as writing:
            writing.prepare(edit, None)
            return writing.commit()[-1]

    @contextmanager
    def _transaction(self, author: Author) -> Iterator[StoreTransaction]:
        with lock_store(self.directory) as held:
            yield StoreTransaction.begin(held, author, self.clock.now())


def exclude_from_git(top: Path, directory: Path) -> bool:
    """Make git ignore *directory* in the repository *top*; return True if a line was added to `.git/info/exclude`.

    Changes no tracked file. Does nothing if *top* has no `.git` directory or *directory* is not below it. Blocks;
    raises `OSError`.
    """
    if not (top / ".git").is_dir() or not directory.is_relative_to(top):
        return False
    path = top / ".git" / "info" / "exclude"
    line = f"/{directory.relative_to(top).as_posix()}/"
    text = path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""
    if line in text.split("\n"):
        return False
    path.parent.mkdir(exist_ok=True)
    start = text if not text or text.endswith("\n") else f"{text}\n"
    replace_file(path, f"{start}{line}\n".encode("utf-8", "surrogateescape"))
    return True


def seed_store(store: MemoryStore, snapshot: Path) -> list[str]:
    """Copy the memories in the directory *snapshot* to *store*, if that is empty; return their paths.

    Stops with `MemoryRefused` at the first memory that the store refuses. Blocks; raises `StoreError` and `OSError`.
    """
    if store.paths() or store.index():
        return []
    source = MemoryStore.at(snapshot)
    names = source.paths()
    author = Author(by="user", why="seeded from the project's snapshot")
    # The index comes first, so that the store finds its lines and adds none.
    for name in (*((INDEX,) if names and source.index() else ()), *names):
        if (content := source.read(name)) is not None:
            store.write(name, content, author, base=None)
    return names

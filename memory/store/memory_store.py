"""A store of memories that several processes write at once, with an index and a change log."""

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
    """What came of several edits."""

    changes: tuple[MemoryChange, ...]
    dropped: tuple[tuple[PendingEdit, str], ...]
    """Those that could not be made, each with the reason."""


@attrs.frozen
class MemoryStore:
    """Memories in one directory, with an index and a history.

    A path is relative to the directory. Every method blocks on the disk, opens the directory anew, and raises
    `OSError`, and `MemoryRefused` for a path that is not allowed or leads over a link. Those that write wait for their
    turn, and also raise `StoreBusy`; whatever they raise, nothing has changed, and what they return survives a power
    cut. A disk that fails both to write and to take back is the exception: the next writer then finishes the change.

    The index follows the memories: a new one gets a line if none links to it, a deleted one takes its line along.
    """

    directory: Path
    clock: Clock = attrs.field(factory=Clock.from_environment)

    @classmethod
    def at(cls, directory: Path, clock: Clock | None = None) -> "MemoryStore":
        """The store in *directory*, which is made by the first write."""
        return cls(directory) if clock is None else cls(directory, clock)

    def paths(self) -> list[str]:
        """The memories, sorted: all Markdown files but the index, the logs, links, and names that begin with a dot."""
        with open_confined(self.directory) as root:
            return [] if root is None else [path for path in root.list_files() if is_memory(path)]

    def read(self, path: str, *, limit: int | None = None) -> bytes | None:
        """What *path* holds, at most *limit* bytes of it; None if there is no such file."""
        with open_confined(self.directory) as root:
            return None if root is None else root.read(path, limit)

    def index(self) -> str:
        """The index; empty if there is none."""
        return (self.read(INDEX) or b"").decode(errors="replace")

    def write(
        self, path: str, content: bytes, author: Author, *, base: bytes | None, group: str | None = None
    ) -> MemoryChange:
        """Put *content* in the place of *base*, None if there must be nothing yet.

        Raises `BaseChanged` if something else stands there, and `MemoryRefused` for what is no text, too large, or
        holds a secret that *base* does not.
        """
        with self._transaction(author) as writing:
            writing.prepare(PendingEdit(path=path, base=base, content=content), group)
            return writing.commit()[-1]

    def delete(self, path: str, author: Author, *, base: bytes) -> MemoryChange:
        """Delete *path*. Raises `BaseChanged` if it does not hold *base*."""
        with self._transaction(author) as writing:
            writing.prepare(PendingEdit(path=path, base=base, content=None), None)
            return writing.commit()[-1]

    def apply(self, edits: Sequence[PendingEdit], author: Author, *, group: str) -> ApplyResult:
        """Make all of *edits* that can be made, at once; after a crash there are all of them or none.

        The line of the index for a memory follows from its edit; an edit of the index itself is judged by what the
        index held before all of them.
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

    def append(self, path: str, content: bytes, author: Author) -> MemoryChange:
        """Add *content* at the end of *path*, whatever stands there; the file is made if it is not there."""
        with self._transaction(author) as writing:
            current = writing.current(path)
            writing.prepare(PendingEdit(path=path, base=current, content=(current or b"") + content), None)
            return writing.commit()[-1]

    def changes(self) -> list[MemoryChange]:
        """Every change, oldest first.

        What was changed past the store is among them once `detect_external_changes` or a write
        saw it.
        """
        return [change for batch in self.batches() for change in batch]

    def batches(self) -> list[list[MemoryChange]]:
        """As `changes`, by what was done at once."""
        with open_confined(self.directory) as root:
            if root is None:
                return []
            with open_history_directory(root) as history:
                try:
                    return [] if history is None else read_batches(history)
                except FileNotFoundError:
                    return []

    def detect_external_changes(self) -> list[MemoryChange]:
        """Record what has been changed past the store, and return that. Reads the whole store and its history."""
        with self._transaction(Author(by="outside")) as writing:
            writing.record_external_changes()
            return writing.commit()

    def undo(self, id_or_group: str, author: Author) -> list[MemoryChange]:
        """Take back one change, or all of a group, and return the changes that do it.

        They are changes themselves, and can be undone. Raises `CannotUndo` if a file is no longer as it was left.
        """
        with self._transaction(author) as writing:
            history = [change for batch in writing.held.history.batches() for change in batch]
            steps = plan_undo(history, id_or_group, writing.held.root.read)
            writing.reverse(steps)
            return [change for change in writing.commit() if change.author.by != "outside"]

    @contextmanager
    def _transaction(self, author: Author) -> Iterator[StoreTransaction]:
        with lock_store(self.directory) as held:
            yield StoreTransaction.begin(held, author, self.clock.now())


SEEDED = "seeded from the project's snapshot"


def exclude_from_git(top: Path, directory: Path) -> bool:
    """Have the git repository at *top* ignore *directory*, which is below it; whether its list has changed.

    The list is the repository's own, `.git/info/exclude`, so that no tracked file changes. Without a repository nothing
    happens. Blocks; raises `OSError`.
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
    """Copy the memories of *snapshot*, a directory, into *store* if that has none; which ones.

    Of what the store refuses nothing is taken. Blocks; raises `StoreError` and `OSError`.
    """
    if store.paths() or store.index():
        return []
    source = MemoryStore.at(snapshot)
    names = source.paths()
    author = Author(by="user", why=SEEDED)
    # The index first: the store then finds its lines there and adds none.
    for name in (*((INDEX,) if names and source.index() else ()), *names):
        if (content := source.read(name)) is not None:
            store.write(name, content, author, base=None)
    return names

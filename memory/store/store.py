"""A store of memories that several processes write at once: nothing is lost, and everything can be taken back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from coterie.clock import Clock
from coterie.memory.errors import BaseChanged, MemoryRefused
from coterie.memory.store.change import Author, Change
from coterie.memory.store.confined import open_confined
from coterie.memory.store.history import read_batches
from coterie.memory.store.index import INDEX, is_memory
from coterie.memory.store.locking import hold, open_history_directory
from coterie.memory.store.undoing import reversals
from coterie.memory.store.writing import Edit, Writing

__all__ = ["Applied", "Edit", "Store"]


@attrs.frozen(kw_only=True)
class Applied:
    """What came of several edits."""

    changes: tuple[Change, ...]
    dropped: tuple[tuple[Edit, str], ...]
    """Those that could not be made, each with the reason."""


@attrs.frozen
class Store:
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
    def at(cls, directory: Path, clock: Clock | None = None) -> "Store":
        """The store in *directory*, which is made by the first write."""
        return cls(directory) if clock is None else cls(directory, clock)

    def paths(self) -> list[str]:
        """The memories, sorted: all Markdown files but the index, the logs, links, and names that begin with a dot."""
        with open_confined(self.directory) as root:
            return [] if root is None else [path for path in root.files() if is_memory(path)]

    def read(self, path: str, *, limit: int | None = None) -> bytes | None:
        """What *path* holds, at most *limit* bytes of it; None if there is no such file."""
        with open_confined(self.directory) as root:
            return None if root is None else root.read(path, limit)

    def index(self) -> str:
        """The index; empty if there is none."""
        return (self.read(INDEX) or b"").decode(errors="replace")

    def write(
        self, path: str, content: bytes, author: Author, *, base: bytes | None, group: str | None = None
    ) -> Change:
        """Put *content* in the place of *base*, None if there must be nothing yet.

        Raises `BaseChanged` if something else stands there, and `MemoryRefused` for what is no text, too large, or
        holds a secret that *base* does not.
        """
        with self._writing(author) as writing:
            writing.prepare(Edit(path=path, base=base, content=content), group)
            return writing.commit()[-1]

    def delete(self, path: str, author: Author, *, base: bytes) -> Change:
        """Delete *path*. Raises `BaseChanged` if it does not hold *base*."""
        with self._writing(author) as writing:
            writing.prepare(Edit(path=path, base=base, content=None), None)
            return writing.commit()[-1]

    def apply(self, edits: Sequence[Edit], author: Author, *, group: str) -> Applied:
        """Make all of *edits* that can be made, at once; after a crash there are all of them or none.

        The line of the index for a memory follows from its edit; an edit of the index itself is judged by what the
        index held before all of them.
        """
        dropped: list[tuple[Edit, str]] = []
        with self._writing(author) as writing:
            for edit in edits:
                try:
                    writing.prepare(edit, group)
                except (BaseChanged, MemoryRefused) as exc:
                    dropped.append((edit, str(exc)))
            changes = [change for change in writing.commit() if change.author.by != "outside"]
        return Applied(changes=tuple(changes), dropped=tuple(dropped))

    def append(self, path: str, content: bytes, author: Author) -> Change:
        """Add *content* at the end of *path*, whatever stands there; the file is made if it is not there."""
        with self._writing(author) as writing:
            current = writing.current(path)
            writing.prepare(Edit(path=path, base=current, content=(current or b"") + content), None)
            return writing.commit()[-1]

    def changes(self) -> list[Change]:
        """Every change, oldest first. What was changed past the store is among them once `notice` or a write saw it."""
        return [change for batch in self.batches() for change in batch]

    def batches(self) -> list[list[Change]]:
        """As `changes`, by what was done at once."""
        with open_confined(self.directory) as root:
            if root is None:
                return []
            with open_history_directory(root) as history:
                try:
                    return [] if history is None else read_batches(history)
                except FileNotFoundError:
                    return []

    def notice(self) -> list[Change]:
        """Record what has been changed past the store, and return that. Reads the whole store and its history."""
        with self._writing(Author(by="outside")) as writing:
            writing.notice_all()
            return writing.commit()

    def undo(self, id_or_group: str, author: Author) -> list[Change]:
        """Take back one change, or all of a group, and return the changes that do it.

        They are changes themselves, and can be undone. Raises `CannotUndo` if a file is no longer as it was left.
        """
        with self._writing(author) as writing:
            history = [change for batch in writing.held.history.batches() for change in batch]
            steps = reversals(history, id_or_group, writing.held.root.read)
            writing.reverse(steps)
            return [change for change in writing.commit() if change.author.by != "outside"]

    @contextmanager
    def _writing(self, author: Author) -> Iterator[Writing]:
        with hold(self.directory) as held:
            yield Writing.begin(held, author, self.clock.now())

"""One write to a memory store under its lock: changes are collected, logged as one record, and applied to files."""

from collections.abc import Sequence
from contextlib import suppress

import attrs

from coterie.memory.errors import BaseChanged, MemoryRefused
from coterie.memory.store.change import Author, MemoryChange, file_states, group_by_path
from coterie.memory.store.confined_directory import ConfinedDirectory
from coterie.memory.store.memory_index import decode_index, encode_index, is_memory, lines_for, update_index
from coterie.memory.store.path_rules import INDEX, case_conflict, quote_path
from coterie.memory.store.secret_scan import new_secrets
from coterie.memory.store.store_lock import StoreLock
from coterie.memory.store.undo import UndoStep, replay


def apply_changes(root: ConfinedDirectory, changes: Sequence[MemoryChange], *, skip_refused: bool = False) -> None:
    """Write the contents after *changes* to the files of the store *root*, and update its index.

    Files that another program changed are skipped; with *skip_refused* also links and directories in place of a file.
    Raises `OSError` and `MemoryRefused`; then some files have the old content and some the new, but none a mixture.
    """
    _write_files(root, changes, is_rollback=False, skip_refused=skip_refused)
    index = root.read(INDEX)
    _replace_index(root, index, apply_to_index(index, changes))


def roll_back(root: ConfinedDirectory, changes: Sequence[MemoryChange], index: bytes | None) -> None:
    """Restore the files as before *changes*, and the index to *index*. Raises `OSError` and `MemoryRefused`."""
    _write_files(root, changes, is_rollback=True, skip_refused=True)
    _replace_index(root, root.read(INDEX), index)


def apply_to_index(index: bytes | None, changes: Sequence[MemoryChange]) -> bytes | None:
    """Return the index content after *changes*: edits of the index itself, then the lines of memories. Idempotent."""
    chains = group_by_path(changes)
    own = chains.pop(INDEX, [])
    if own and index in file_states(own):
        index = own[-1].after
    text = decode_index(index)
    after = update_index(text, [change for chain in chains.values() for change in chain])
    return index if after == text else encode_index(after)


def _write_files(
    root: ConfinedDirectory, changes: Sequence[MemoryChange], *, is_rollback: bool, skip_refused: bool
) -> None:
    chains = group_by_path(changes)
    chains.pop(INDEX, None)
    for path, chain in chains.items():
        content = chain[0].before if is_rollback else chain[-1].after
        with suppress(*[MemoryRefused] if skip_refused else []):
            current = root.read(path)
            # Other content was written by a program that bypassed the store, and is kept.
            if current != content and current in file_states(chain):
                root.write(path, content)


def _replace_index(root: ConfinedDirectory, old: bytes | None, new: bytes | None) -> None:
    if new is None and old is not None:
        root.write(INDEX, None)
    elif new is not None and new != old:
        root.append(INDEX, old, new)


LARGEST = 1_000_000
"""Maximum size of a memory file, in bytes; a file that is already larger may not grow."""
LARGEST_INDEX = 10 * LARGEST
"""Maximum size of the index file, in bytes; it has a line for each of many thousands of memories."""


@attrs.frozen(kw_only=True)
class PendingEdit:
    """An edit that a writer wants to make: path of one file, the content that it must have, and its new content."""

    path: str
    base: bytes | None
    """Content that the file must have, because the writer saw it; None if the file must not exist."""
    content: bytes | None
    """New content of the file; None to delete it."""


@attrs.define(eq=False)
class StoreTransaction:
    """One write under the lock of a store: collects changes, until `commit` logs them and writes the files."""

    held: StoreLock
    author: Author
    _at: float
    _last: int
    """Highest change id assigned so far, in the change log or in this transaction."""
    _changes: list[MemoryChange] = attrs.field(factory=list)
    _files: dict[str, bytes | None] = attrs.field(factory=dict)
    """Content, by path, of each file after the changes collected so far; None for a deleted file."""

    @classmethod
    def begin(cls, held: StoreLock, author: Author, at: float) -> "StoreTransaction":
        """Start a transaction; first complete a change that a crash interrupted. Raises `OSError`, `MemoryRefused`."""
        end = held.history.end()
        if end.pending:
            apply_changes(held.root, end.pending, skip_refused=True)
            held.history.mark_applied(end.pending[-1])
        return cls(held, author, at, end.last)

    def prepare(self, edit: PendingEdit, group: str | None) -> None:
        """Check *edit* and add its change. Raises `BaseChanged`, `MemoryRefused` or `OSError` without adding it."""
        path = self.held.root.resolve(edit.path)
        if other := case_conflict(path, self._files):
            reason = f"differs only in case or normal form from {other} in the same write; use one spelling"
            raise MemoryRefused(edit.path, reason)
        current = self._files[path] if path in self._files else self.held.root.read(path)
        if current != edit.base:
            raise BaseChanged(path, current)
        if edit.content is not None:
            _check_content(path, edit.content, current)
        self._record_external_change(path, current)
        line = self._index_line(path) if edit.content is None else None
        self._add(path, current, edit.content, group=group, index_line=line)

    def reverse(self, steps: Sequence[UndoStep]) -> None:
        """Add the changes that carry out *steps*, a planned undo; several changes become a group with a common id."""
        group = f"undo-{self._last + 1}" if len(steps) > 1 else None
        for step in steps:
            path = step.undoes.path
            self._record_external_change(path, step.before)
            line = self._index_line(path) if step.after is None else step.undoes.index_line
            self._add(path, step.before, step.after, group=group, undoes=step.undoes.id, index_line=line)

    def record_external_changes(self) -> None:
        """Add a change for each file whose content differs from the log, because it was edited without the store."""
        known = replay(self.held.history.batches())
        for path in sorted({*known, *self.held.root.list_files()}):
            current = None
            with suppress(MemoryRefused):  # a link does not count as a file of the store
                current = self.held.root.read(path)
            if current != known.get(path):
                self._add(path, known.get(path), current)

    def commit(self) -> list[MemoryChange]:
        """Log all collected changes as one record and write their files; return them, with edits by other programs.

        Raises `OSError` and `MemoryRefused`; then nothing has changed, unless the rollback failed too.
        """
        if not self._changes:
            return []
        root, history = self.held.root, self.held.history
        index = root.read(INDEX)
        history.append(self._changes)
        try:
            apply_changes(root, self._changes)
        except (OSError, MemoryRefused) as failure:
            try:
                roll_back(root, self._changes, index)
                history.drop_last()
            except (OSError, MemoryRefused):
                failure.add_note("the change could not be rolled back; the next write to this store completes it")
            raise
        history.mark_applied(self._changes[-1])
        return self._changes

    def _record_external_change(self, path: str, current: bytes | None) -> None:
        """Add a change for an edit of *path* that bypassed the store, before the transaction overwrites the file."""
        if path in self._files or current is None:
            return  # the change log holds the last content of a deleted file
        known = replay(self.held.history.batches()).get(path) if path == INDEX else self.held.history.last_content(path)
        if known != current:
            self._add(path, known, current, author=Author(by="outside"))

    def _index_line(self, path: str) -> str | None:
        index = decode_index(self.held.root.read(INDEX)) if is_memory(path) else ""
        return next(iter(lines_for(index, path)), None)

    def _add(
        self,
        path: str,
        before: bytes | None,
        after: bytes | None,
        *,
        author: Author | None = None,
        group: str | None = None,
        undoes: str | None = None,
        index_line: str | None = None,
    ) -> None:
        self._last += 1
        self._files[path] = after
        self._changes.append(
            MemoryChange(
                id=str(self._last),
                at=self._at,
                author=author or self.author,
                path=path,
                before=before,
                after=after,
                group=group,
                undoes=undoes,
                index_line=index_line,
            )
        )


def _check_content(path: str, content: bytes, current: bytes | None) -> None:
    largest = LARGEST_INDEX if path == INDEX else LARGEST
    if len(content) > max(largest, len(current or b"")):
        raise MemoryRefused(path, f"would have {len(content)} bytes; shorten it to at most {largest} bytes")
    # Text that was there before the append is not checked.
    start = len(current) if current and content.startswith(current) else 0
    if b"\0" in content[start:]:
        raise MemoryRefused(path, "would contain a NUL character; write only text to a memory")
    try:
        content[start:].decode()
    except UnicodeDecodeError as exc:
        reason = f"would not be valid UTF-8 from byte {start + exc.start} on; write only UTF-8 text to a memory"
        raise MemoryRefused(path, reason) from exc
    if secrets := new_secrets(content.decode(errors="replace"), (current or b"").decode(errors="replace")):
        found = secrets[0]
        reason = f"would contain {found.kind} in line {found.line}; write where the secret is kept, not its value"
        raise MemoryRefused(quote_path(path), reason)

"""One write to a store under its lock: changes are collected, logged as one, and applied."""

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


def apply_changes(root: ConfinedDirectory, changes: Sequence[MemoryChange]) -> None:
    """Bring *changes* into the files, and the index into step.

    Raises `OSError` and `MemoryRefused`; some files may then hold the old, some the new, and none a part.
    """
    for path, chain in _final_contents(changes):
        _write_file(root, path, chain, chain[-1].after)
    _write_index(root, changes)


def complete_pending(root: ConfinedDirectory, changes: Sequence[MemoryChange]) -> None:
    """Bring in what a crash left of *changes*; a link or the like in the place of a file is left as it is.

    Raises `OSError`, and `MemoryRefused` if the index cannot be read.
    """
    for path, chain in _final_contents(changes):
        with suppress(MemoryRefused):
            _write_file(root, path, chain, chain[-1].after)
    _write_index(root, changes)


def roll_back(root: ConfinedDirectory, changes: Sequence[MemoryChange], index: bytes | None) -> None:
    """Bring the files back to what they were before *changes*, and the *index*; raises as `complete_pending` does."""
    for path, chain in _final_contents(changes):
        with suppress(MemoryRefused):
            _write_file(root, path, chain, chain[0].before)
    _replace_index(root, root.read(INDEX), index)


def apply_to_index(index: bytes | None, changes: Sequence[MemoryChange]) -> bytes | None:
    """What the index holds after *changes*, done at once; the same if it holds that already."""
    chains = group_by_path(changes)
    own = chains.pop(INDEX, [])
    if own and index in file_states(own):
        index = own[-1].after
    text = decode_index(index)
    after = update_index(text, [change for chain in chains.values() for change in chain])
    return index if after == text else encode_index(after)


def _final_contents(changes: Sequence[MemoryChange]) -> list[tuple[str, list[MemoryChange]]]:
    return [(path, chain) for path, chain in group_by_path(changes).items() if path != INDEX]


def _write_file(root: ConfinedDirectory, path: str, chain: Sequence[MemoryChange], content: bytes | None) -> None:
    current = root.read(path)
    # What is none of what it was on the way was written past us.
    if current != content and current in file_states(chain):
        root.write(path, content)


def _write_index(root: ConfinedDirectory, changes: Sequence[MemoryChange]) -> None:
    index = root.read(INDEX)
    _replace_index(root, index, apply_to_index(index, changes))


def _replace_index(root: ConfinedDirectory, old: bytes | None, new: bytes | None) -> None:
    if new == old:
        return
    if new is None:
        root.write(INDEX, None)
    else:
        root.append(INDEX, old, new)


LARGEST = 1_000_000
"""Bytes of one file; what is longer is no memory. One that others made longer may still become shorter."""
LARGEST_INDEX = 10 * LARGEST
"""A line for each memory, and there may be many thousands."""


@attrs.frozen(kw_only=True)
class PendingEdit:
    """What one file is to become."""

    path: str
    base: bytes | None
    """What its writer saw; None: nothing."""
    content: bytes | None
    """None: it is deleted."""


@attrs.define(eq=False)
class StoreTransaction:
    """The changes of one writer who holds the store."""

    held: StoreLock
    author: Author
    _at: float
    _last: int
    """The last id that was given."""
    _changes: list[MemoryChange] = attrs.field(factory=list)
    _files: dict[str, bytes | None] = attrs.field(factory=dict)
    """What those that are to change hold by now."""

    @classmethod
    def begin(cls, held: StoreLock, author: Author, at: float) -> "StoreTransaction":
        """Begin, by finishing what a crash has left. Raises `OSError` and `MemoryRefused`."""
        end = held.history.end()
        if end.pending:
            complete_pending(held.root, end.pending)
            held.history.mark_applied(end.pending[-1])
        return cls(held, author, at, end.last)

    def current(self, path: str) -> bytes | None:
        """What *path* holds."""
        return self._current(self.held.root.resolve(path))

    def prepare(self, edit: PendingEdit, group: str | None) -> None:
        """Add *edit*. Raises `BaseChanged`, `MemoryRefused` and `OSError`; it is then not among what is to change."""
        path = self._resolve(edit.path)
        current = self._current(path)
        if current != edit.base:
            raise BaseChanged(path, current)
        if edit.content is not None:
            _check_content(path, edit.content, current)
        self._record_external_change(path, current)
        line = self._index_line(path) if edit.content is None else None
        self._add(path, current, edit.content, group=group, index_line=line)

    def reverse(self, steps: Sequence[UndoStep]) -> None:
        """Add what takes changes back; several are a group of their own."""
        group = f"undo-{self._last + 1}" if len(steps) > 1 else None
        for step in steps:
            path = step.undoes.path
            self._record_external_change(path, step.before)
            line = self._index_line(path) if step.after is None else step.undoes.index_line
            self._add(path, step.before, step.after, group=group, undoes=step.undoes.id, index_line=line)

    def record_external_changes(self) -> None:
        """Add whatever has been changed past the store."""
        known = replay(self.held.history.batches())
        for path in sorted({*known, *self.held.root.list_files()}):
            current = self._read_regular(path)
            if current != known.get(path):
                self._add(path, known.get(path), current)

    def commit(self) -> list[MemoryChange]:
        """Make all changes at once, and return them. Raises `OSError` and `MemoryRefused`; nothing has changed then."""
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
                failure.add_note("it could not be taken back either; whoever writes next will finish it")
            raise
        history.mark_applied(self._changes[-1])
        return self._changes

    def _resolve(self, path: str) -> str:
        placed = self.held.root.resolve(path)
        if other := case_conflict(placed, self._files):
            raise MemoryRefused(path, f"differs only in case or normal form from {other}, which is written with it")
        return placed

    def _current(self, path: str) -> bytes | None:
        return self._files[path] if path in self._files else self.held.root.read(path)

    def _read_regular(self, path: str) -> bytes | None:
        """What *path* holds; None also for a link: as far as the store goes, there is nothing then."""
        try:
            return self.held.root.read(path)
        except MemoryRefused:
            return None

    def _record_external_change(self, path: str, current: bytes | None) -> None:
        """Record what somebody did to *path* past the store, before it is written over."""
        if path in self._files or current is None:
            return  # what is gone has left its last words in the history
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
        raise MemoryRefused(path, f"would have {len(content)} bytes; a memory has at most {largest}")
    # What is only added to is not to blame for what stood there.
    start = len(current) if current and content.startswith(current) else 0
    if b"\0" in content[start:]:
        raise MemoryRefused(path, "would hold a NUL; a memory is text")
    try:
        content[start:].decode()
    except UnicodeDecodeError as exc:
        reason = f"would not be valid UTF-8 from byte {start + exc.start} on; a memory is text"
        raise MemoryRefused(path, reason) from exc
    if secrets := new_secrets(content.decode(errors="replace"), (current or b"").decode(errors="replace")):
        found = secrets[0]
        reason = f"would hold {found.kind} in line {found.line}; no secrets in memories: say where it is kept instead"
        raise MemoryRefused(quote_path(path), reason)

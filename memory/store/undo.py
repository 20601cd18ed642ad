"""Replay of the change log, and plans to undo changes."""

from collections.abc import Callable, Iterable, Sequence

import attrs

from coterie.memory.errors import CannotUndo
from coterie.memory.store.change import MemoryChange, group_by_path
from coterie.memory.store.memory_index import (
    decode_index,
    encode_index,
    index_lines,
    is_memory,
    revert_index,
    update_index,
)
from coterie.memory.store.path_rules import INDEX


def replay(batches: Iterable[Sequence[MemoryChange]]) -> dict[str, bytes]:
    """Return the content of all files of a store, and of its index, if no program bypassed the store."""
    files: dict[str, bytes | None] = {}
    index = _ReplayedIndex()
    for changes in batches:
        for change in changes:
            files[change.path] = change.after
            if change.path == INDEX:
                index.replace(change.after)
        was_missing = index.is_missing
        for chain in group_by_path(changes).values():
            for change in chain:
                index.apply(change)
        if was_missing and not index.content:  # a transaction that adds and deletes a memory creates no index
            index.replace(None)
    files[INDEX] = index.content
    return {path: content for path, content in files.items() if content is not None}


@attrs.define(eq=False)
class _ReplayedIndex:
    """Incremental `apply_to_index` for thousands of changes: a new memory costs only its own line."""

    _pieces: list[str] | None = None
    """The replayed index, in parts; None if there is no index file."""
    _linked: set[str] = attrs.field(factory=set)

    @property
    def is_missing(self) -> bool:
        """True if there is no index file."""
        return self._pieces is None

    @property
    def content(self) -> bytes | None:
        """The content of the replayed index file."""
        return None if self._pieces is None else encode_index("".join(self._pieces))

    def replace(self, content: bytes | None) -> None:
        """Replace the index, because a change wrote or deleted the index itself."""
        self._pieces = None if content is None else [decode_index(content)]
        self._linked = {entry.path for entry in index_lines(decode_index(content))}

    def apply(self, change: MemoryChange) -> None:
        """Update the index after a memory was added, changed or deleted."""
        pieces = self._pieces or [""]
        is_linked = change.path in self._linked
        if not is_memory(change.path) or (change.after is None and not is_linked):
            return
        if change.after is None:
            self._pieces = [update_index("".join(pieces), [change])]
            self._linked.discard(change.path)
        elif not pieces[-1].endswith("\n"):
            self._pieces = [update_index("".join(pieces), [change])]
            self._linked.add(change.path)
        elif not is_linked:
            pieces.append(update_index("", [change]))
            self._linked.add(change.path)


@attrs.frozen(kw_only=True)
class UndoStep:
    """One step of an undo: the content of one file before and after the step."""

    undoes: MemoryChange
    before: bytes | None
    after: bytes | None


def plan_undo(history: Sequence[MemoryChange], target: str, current: Callable[[str], bytes | None]) -> list[UndoStep]:
    """Plan the undo of the change or group *target*, newest change first.

    In the index only the edits of the change are undone; any other file must be as the change left it. Raises
    `CannotUndo`.
    """
    chosen = [change for change in history if change.id == target] or [c for c in history if c.group == target]
    if not chosen:
        raise CannotUndo(target, "is not in the history of this memory")
    files: dict[str, bytes | None] = {}
    steps: list[UndoStep] = []
    for change in reversed(chosen):
        now = files[change.path] if change.path in files else current(change.path)
        if now != change.after and change.path != INDEX:
            raise CannotUndo(target, _undo_obstacle(change, history))
        after = change.before
        if now != change.after:
            states = (now, change.before, change.after)
            after = encode_index(revert_index(*map(decode_index, states)))
        files[change.path] = after
        steps.append(UndoStep(undoes=change, before=now, after=after))
    return steps


def _undo_obstacle(change: MemoryChange, history: Sequence[MemoryChange]) -> str:
    later = [other for other in history if other.path == change.path and int(other.id) > int(change.id)]
    undone = next((other.id for other in later if other.undoes == change.id), None)
    if undone is not None:
        return f"has already been undone, by change {undone}"
    if not later:
        return f"cannot be undone: {change.path} has been changed since by another program"
    ids = ", ".join(other.id for other in later)
    return f"cannot be undone: {change.path} has been changed since, by {ids}; undo the later changes first"

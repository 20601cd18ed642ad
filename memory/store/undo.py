"""Undo of changes of memories: replay of the change log of a store, and the plan of an undo."""

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
    """Return the contents of all files of a store, by path, after *batches*, the transactions of its change log."""
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
    """The store's index during a replay of the change log, updated by each change; fast for thousands of changes."""

    _pieces: list[str] | None = None
    """Text of the index after the changes so far, in parts to be joined; None if there is no index file."""
    _linked: set[str] = attrs.field(factory=set)

    @property
    def is_missing(self) -> bool:
        """True if there is no index file after the changes replayed so far."""
        return self._pieces is None

    @property
    def content(self) -> bytes | None:
        """Content of the index file after the changes replayed so far; None if there is no index file."""
        return None if self._pieces is None else encode_index("".join(self._pieces))

    def replace(self, content: bytes | None) -> None:
        """Replace the index by *content*, because a change wrote the index file itself; None if that deleted it."""
        self._pieces = None if content is None else [decode_index(content)]
        self._linked = {entry.path for entry in index_lines(decode_index(content))}

    def apply(self, change: MemoryChange) -> None:
        """Update the lines of the index after *change* added, changed or deleted a memory."""
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
    """One step of an undo: the change to be undone, and the content of its file before and after the step."""

    undoes: MemoryChange
    before: bytes | None
    after: bytes | None


def plan_undo(history: Sequence[MemoryChange], target: str, current: Callable[[str], bytes | None]) -> list[UndoStep]:
    """Return the steps that undo the change or group with the id *target*, newest change first; writes no file.

    *current* reads a file. In the index only the edits of the change are undone; any other file must be as the change
    left it. Raises `CannotUndo`.
    """
    chosen = [change for change in history if change.id == target] or [c for c in history if c.group == target]
    if not chosen:
        raise CannotUndo(target, "is not in the history of this memory; `coterie memory log` lists the changes")
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
        return f"has already been undone, by change {undone}; undo that change to restore this one"
    if not later:
        return f"cannot be undone: {change.path} has been changed since by another program; edit it by hand"
    ids = ", ".join(other.id for other in later)
    return f"cannot be undone: {change.path} has been changed since, by {ids}; undo the later changes first"

"""One change of a memory: its author, its reason, and the content before and after."""

from collections.abc import Iterable
from typing import Literal

import attrs

Writer = Literal["agent", "extraction", "dream", "user", "outside"]
"""Origin of a change; "outside" is an edit that bypassed the store, with an editor or a command."""
Action = Literal["added", "changed", "removed"]


@attrs.frozen(kw_only=True)
class Author:
    """Author of a change: its origin, agent, session and turn, and its reason."""

    by: Writer
    agent: str | None = None
    session: str | None = None
    turn: int | None = None
    why: str = ""


@attrs.frozen(kw_only=True)
class MemoryChange:
    """One change of one file of a store."""

    id: str
    """Sequence number of the change within its store."""
    at: float
    author: Author
    path: str
    """Path of the changed file, relative to the store."""
    before: bytes | None
    """Previous content; None if the file did not exist."""
    after: bytes | None
    """New content of the file; None if the file was deleted."""
    group: str | None = None
    """Id shared by changes that were made together and are undone together."""
    undoes: str | None = None
    """Id of the change that this change undoes."""
    index_line: str | None = None
    """Index line that was removed together with a deleted memory; an undo restores it."""

    @property
    def action(self) -> Action:
        """The effect of the change on the file: added, changed or removed."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


def group_by_path(changes: Iterable[MemoryChange]) -> dict[str, list[MemoryChange]]:
    """Group *changes* by path, in order, without those that bypassed the store: the files already have them."""
    chains: dict[str, list[MemoryChange]] = {}
    for change in changes:
        if change.author.by != "outside":
            chains.setdefault(change.path, []).append(change)
    return chains


def file_states(chain: Iterable[MemoryChange]) -> list[bytes | None]:
    """Return every content that a file had during *chain*."""
    return [content for change in chain for content in (change.before, change.after)]

"""One change of a memory: its author, its reason, and the content before and after."""

from collections.abc import Iterable
from typing import Literal

import attrs

Writer = Literal["agent", "extraction", "dream", "user", "outside"]
"""outside: somebody who wrote past the store, with an editor or a command."""
Action = Literal["added", "changed", "removed"]


@attrs.frozen(kw_only=True)
class Author:
    """Who makes a change, and why."""

    by: Writer
    agent: str | None = None
    session: str | None = None
    turn: int | None = None
    why: str = ""


@attrs.frozen(kw_only=True)
class MemoryChange:
    """One change of one file of a store."""

    id: str
    """A running number of the store."""
    at: float
    author: Author
    path: str
    """Relative to the store."""
    before: bytes | None
    """None: it did not exist."""
    after: bytes | None
    """None: it was deleted."""
    group: str | None = None
    """What it was made together with, and is undone together with."""
    undoes: str | None = None
    """The change that it takes back."""
    index_line: str | None = None
    """The line of the index that went with a deleted memory, and comes back with it."""

    @property
    def action(self) -> Action:
        """What it did to the file."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


def group_by_path(changes: Iterable[MemoryChange]) -> dict[str, list[MemoryChange]]:
    """The *changes* of each file, in their order; what was done past the store was done already, and is left out."""
    chains: dict[str, list[MemoryChange]] = {}
    for change in changes:
        if change.author.by != "outside":
            chains.setdefault(change.path, []).append(change)
    return chains


def file_states(chain: Iterable[MemoryChange]) -> list[bytes | None]:
    """All that a file held on the way."""
    return [content for change in chain for content in (change.before, change.after)]

"""Record of one change of a memory (Markdown file of an agent): author, reason, and content before and after."""

from collections.abc import Iterable
from typing import Literal

import attrs

Writer = Literal["agent", "extraction", "dream", "user", "outside"]
"""Origin of a change: "extraction" saves memories of a conversation, "dream" tidies them, "outside": other programs."""
Action = Literal["added", "changed", "removed"]


@attrs.frozen(kw_only=True)
class Author:
    """Author of a change of a memory: its origin, agent, session and turn, and its reason."""

    by: Writer
    agent: str | None = None
    session: str | None = None
    turn: int | None = None
    why: str = ""


@attrs.frozen(kw_only=True)
class MemoryChange:
    """One change of one file of a memory store, as its change log records it."""

    id: str
    """Sequence number of the change within its store, as text."""
    at: float
    author: Author
    path: str
    """Path of the changed file, relative to the directory of the store."""
    before: bytes | None
    """Content of the file before the change; None if the file did not exist."""
    after: bytes | None
    """Content of the file after the change; None if the change deleted the file."""
    group: str | None = None
    """Id shared by changes that were made together and can be undone together; None for a single change."""
    undoes: str | None = None
    """Id of the older change that this change undoes; None if it is not an undo."""
    index_line: str | None = None
    """Line of the memory in the index, which its deletion removed or an undo of the deletion restored; else None."""

    @property
    def action(self) -> Action:
        """Effect of the change on the file: "added", "changed" or "removed"."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


def group_by_path(changes: Iterable[MemoryChange]) -> dict[str, list[MemoryChange]]:
    """Return *changes* grouped by path, in order, without edits by other programs: the files have these already."""
    chains: dict[str, list[MemoryChange]] = {}
    for change in changes:
        if change.author.by != "outside":
            chains.setdefault(change.path, []).append(change)
    return chains


def file_states(chain: Iterable[MemoryChange]) -> list[bytes | None]:
    """Return all contents, before and after each change, that a file had during *chain*, its successive changes."""
    return [content for change in chain for content in (change.before, change.after)]

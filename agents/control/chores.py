"""What an agent of a session that does not run can be taken up for, instead of a task."""

from typing import Any, Literal

import msgspec

from coterie.agents.control.compaction_words import Compact
from coterie.agents.control.word import Word


class Extract(Word, tag="extract", frozen=True):
    """Take what is worth keeping from the conversation into the memory, however little is new in it."""


class Dream(Word, tag="dream", frozen=True):
    """Consolidate the memory."""

    is_forced: bool = False
    """Whether neither the time since the last dream nor the number of sessions matters."""
    is_dry: bool = False
    """Whether the memory stays as it is, and what would change is only kept to be looked at."""
    deletions: Literal["ask", "apply"] = "ask"
    """Whether what takes something away waits for the user."""


Chore = Compact | Extract | Dream


def read_chore(members: dict[str, Any] | None) -> Chore | None:
    """The chore that was written as JSON, with *members*; None for none. Raises `msgspec.ValidationError`."""
    chore: Chore | None = msgspec.convert(members, Chore | None)
    return chore

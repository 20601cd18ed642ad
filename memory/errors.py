"""The errors of what an agent keeps.

StoreError
├── NotesUnusable     session notes, or what a user gave for them, are not as they must be
└── SummaryUnusable   a summary cannot stand for what it summarises: the next way is taken
"""

import attrs


class StoreError(Exception):
    """Base of everything `coterie.memory` raises on purpose."""


@attrs.define(eq=False)
class NotesUnusable(StoreError):
    """Session notes cannot be kept like this, or an update of them came to nothing."""

    reason: str
    """What is wrong and what would be right, in one line."""

    def __str__(self) -> str:
        return self.reason


@attrs.define(eq=False)
class SummaryUnusable(StoreError):
    """A summary cannot stand for a conversation."""

    reason: str

    def __str__(self) -> str:
        return self.reason

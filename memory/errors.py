"""The errors of what an agent keeps.

StoreError
├── NotesUnusable     session notes, or what a user gave for them, are not as they must be
├── SummaryUnusable   a summary cannot stand for what it summarises: the next way is taken
├── MemoryRefused     this must not be written, or not there: a path that leads out, a secret, what is no text
├── BaseChanged       a memory is no longer what its writer saw; carries what stands there now
├── StoreBusy         another process holds the store's lock for too long
├── CannotUndo        a change is unknown, or others have been made since
└── DreamRefused      no dream can begin now: another one runs, or there is nothing to dream of
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


@attrs.define(eq=False)
class MemoryRefused(StoreError):
    """A memory must not be written like this. Nothing has changed."""

    path: str
    """As the writer calls it."""
    reason: str
    """What is wrong and what would be right, in one line."""

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"


@attrs.define(eq=False)
class BaseChanged(StoreError):
    """A memory is no longer what its writer saw. Nothing has changed."""

    path: str
    current: bytes | None
    """What stands there now; None if it is gone."""

    def __str__(self) -> str:
        change = "has been deleted" if self.current is None else "has been changed"
        return f"{self.path} {change} by another writer"


@attrs.define(eq=False)
class StoreBusy(StoreError):
    """Another process holds the lock of a store."""

    directory: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.directory} is being written by another process, for more than {self.seconds:g} seconds"


@attrs.define(eq=False)
class CannotUndo(StoreError):
    """A change of a memory cannot be taken back like this. Nothing has changed."""

    change: str
    reason: str

    def __str__(self) -> str:
        return f"change {self.change} {self.reason}"


@attrs.define(eq=False)
class DreamRefused(StoreError):
    """No dream can begin now."""

    reason: str

    def __str__(self) -> str:
        return self.reason

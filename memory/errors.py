"""Exceptions of the memory package.

StoreError
├── NotesUnusable     session notes, their template or their prompt are invalid
├── SummaryUnusable   a summary cannot replace a conversation; the next strategy is tried
├── MemoryRefused     a path or a write is not allowed: outside the store, a link, a secret, content that is not text
├── BaseChanged       a memory differs from the content that its writer saw; carries the current content
├── StoreBusy         another process held the lock of the store for too long
├── CannotUndo        a change is unknown, or later changes depend on it
└── DreamRefused      no dream can start now, because another dream is running, or a stored dream was not found
"""

import attrs

from coterie.errors import ReasonError


class StoreError(Exception):
    """Base class of the exceptions that `coterie.memory` raises on purpose."""


class NotesUnusable(StoreError, ReasonError):
    """Session notes, their template or their prompt are invalid, or an update of the notes failed."""


class SummaryUnusable(StoreError, ReasonError):
    """A summary cannot replace a conversation, because it is empty, cut off, refused or too long."""


@attrs.define(eq=False)
class MemoryRefused(StoreError):
    """A path or a write is not allowed in a memory store. Nothing has changed."""

    path: str
    """Refused path, as the caller gave it; or the name of the setting that contains the path."""
    reason: str
    """One line about the problem and the expected form; `path` is its grammatical subject."""

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"


@attrs.define(eq=False)
class BaseChanged(StoreError):
    """A write was refused, because the memory has changed since the writer read it. The write changed nothing."""

    path: str
    current: bytes | None
    """Current content of the memory; None if the file does not exist."""

    def __str__(self) -> str:
        change = "has been deleted" if self.current is None else "has been changed"
        return f"{self.path} {change} by another writer"


@attrs.define(eq=False)
class StoreBusy(StoreError):
    """Another process held the lock of a memory store until the timeout, so nothing was written."""

    directory: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.directory} has been locked by another process for more than {self.seconds:g} seconds; try again"


@attrs.define(eq=False)
class CannotUndo(StoreError):
    """A change of a memory cannot be undone. The attempt changed no file."""

    change: str
    reason: str

    def __str__(self) -> str:
        return f"change {self.change} {self.reason}"


class DreamRefused(StoreError, ReasonError):
    """A dream (a background run that consolidates memories) cannot start now, or a stored dream was not found."""

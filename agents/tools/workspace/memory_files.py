"""Memory files that an agent may change, and their changes."""

import os
from collections.abc import Callable
from pathlib import Path

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.workspace.file_change import FileVersion, ReadFiles, decoded
from coterie.memory.errors import BaseChanged, MemoryRefused, StoreBusy
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_store import MemoryStore

SHOWN = 20_000
"""Maximum characters of a memory that is shown after a rejected write."""


@attrs.frozen(kw_only=True)
class WritableMemory:
    """The memory stores that an agent may change."""

    stores: tuple[MemoryStore, ...]
    author: Callable[[], Author]
    """Returns the author to record for the next change."""
    on_change: Callable[[MemoryChange], None] = lambda _: None
    """Called after each change, in the task that made it."""

    def find(self, path: Path) -> "StoredMemoryFile | None":
        """Return the memory at the absolute *path*; None if it is in no store. Follows no links and reads no file."""
        plain = Path(os.path.normpath(path))
        for store in self.stores:
            for place in dict.fromkeys((store.directory, _real(store.directory))):
                if plain.is_relative_to(place):
                    return StoredMemoryFile(store=store, name=plain.relative_to(place).as_posix(), author=self.author)
        return None

    def holds(self, path: Path) -> bool:
        """Return True if *path*, with links already followed, is in one of the stores."""
        return any(path.is_relative_to(_real(store.directory)) for store in self.stores)


@attrs.frozen(kw_only=True)
class StoredMemoryFile:
    """A file in a memory store; a write that is based on an old version is rejected with the current content."""

    store: MemoryStore
    name: str
    author: Callable[[], Author]

    @property
    def path(self) -> Path:
        """Path of the file, with the links above the store followed; a store contains no links."""
        return _real(self.store.directory) / self.name

    def read(self, seen: ReadFiles) -> FileVersion | None:
        """Read the file; None if it does not exist. Raises `ToolFailed`."""
        try:
            content = self.store.read(self.name)
        except MemoryRefused as exc:
            raise ToolFailed(f"This path cannot be a memory: {exc}") from exc
        except OSError as exc:
            raise ToolFailed(f"{self.name} cannot be read: {exc.strerror}") from exc
        if content is None:
            return None
        try:
            seen.check(self.path, content)
        except ToolFailed as exc:
            raise self._rejected(exc.reason, content, seen) from exc
        return FileVersion(text=decoded(self.name, content), content=content)

    def write(self, content: bytes, existing: FileVersion | None, seen: ReadFiles) -> MemoryChange:
        """Replace the content if the file is still *existing*; return the change. Raises `ToolFailed`."""
        base = None if existing is None else existing.content
        try:
            return self.store.write(self.name, content, self.author(), base=base)
        except BaseChanged as exc:
            raise self._rejected(f"Nothing was written: {exc}.", exc.current, seen) from exc
        except (MemoryRefused, StoreBusy) as exc:
            raise ToolFailed(f"Nothing was written: {exc}") from exc
        except OSError as exc:
            raise ToolFailed(f"{self.name} could not be written: {exc.strerror}") from exc

    def _rejected(self, reason: str, content: bytes | None, seen: ReadFiles) -> ToolFailed:
        """Return the error of a write without knowledge of *content*; it shows the content and marks it as read."""
        if content is None:
            return ToolFailed(f"{reason} The file does not exist any longer.")
        seen.record(self.path, content)
        text = content.decode("utf-8", "replace")
        rest = f"\n[cut: {len(text):,} characters in all]" if len(text) > SHOWN else ""
        return ToolFailed(f"{reason} This is the current content; base your change on it:\n{text[:SHOWN]}{rest}")


def _real(directory: Path) -> Path:
    return Path(os.path.realpath(directory))

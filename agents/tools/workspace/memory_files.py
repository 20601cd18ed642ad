"""Memory files among the files of an agent, and their changes."""

import os
from collections.abc import Callable
from pathlib import Path

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.workspace.file_change import FileVersion, FileWrite, decoded, encoded
from coterie.agents.tools.workspace.read_tracking import ReadFiles
from coterie.memory.errors import BaseChanged, MemoryRefused, StoreBusy
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_store import MemoryStore

SHOWN = 20_000
"""Characters of a memory that is shown to a writer who did not know it."""


def _ignore_change(_change: MemoryChange) -> None:
    """Who is told of changes that nobody watches."""


@attrs.frozen(kw_only=True)
class WritableMemory:
    """The stores that an agent may change: files in them, and nothing else by this right."""

    stores: tuple[MemoryStore, ...]
    author: Callable[[], Author]
    """Who makes the change that is about to be made."""
    on_change: Callable[[MemoryChange], None] = _ignore_change
    """Called after each change, by the task that made it."""

    def find(self, path: Path) -> "StoredMemoryFile | None":
        """The memory that *path*, absolute, names by itself; None for anything else. Looks at no file."""
        plain = Path(os.path.normpath(path))
        for store in self.stores:
            for place in dict.fromkeys((store.directory, _real(store.directory))):
                if plain.is_relative_to(place):
                    return StoredMemoryFile(store=store, name=plain.relative_to(place).as_posix(), author=self.author)
        return None

    def holds(self, path: Path) -> bool:
        """Whether *path*, with links followed, is in one of the stores."""
        return any(path.is_relative_to(_real(store.directory)) for store in self.stores)


@attrs.frozen(kw_only=True)
class StoredMemoryFile:
    """A file in a store. Whoever changes one must have seen it as it is; who has not is shown it."""

    store: MemoryStore
    name: str
    author: Callable[[], Author]

    @property
    def path(self) -> Path:
        """The file, below its store with links followed; in the store there are none."""
        return _real(self.store.directory) / self.name

    def read(self, seen: ReadFiles) -> FileVersion | None:
        """What stands there; None if nothing does. Raises `ToolFailed`."""
        try:
            content = self.store.read(self.name)
        except MemoryRefused as exc:
            raise ToolFailed(f"This cannot be a memory: {exc}") from exc
        except OSError as exc:
            raise ToolFailed(f"{self.name} cannot be read: {exc.strerror}") from exc
        if content is None:
            return None
        try:
            seen.check(self.path, content)
        except ToolFailed as exc:
            raise self._shown(exc.reason, content, seen) from exc
        return FileVersion(text=decoded(self.name, content), content=content)

    def write(self, text: str, existing: FileVersion | None, seen: ReadFiles) -> FileWrite:
        """Make *text* all that stands there, unless that is no longer *existing*. Raises `ToolFailed`."""
        content = encoded(text)
        base = None if existing is None else existing.content
        try:
            change = self.store.write(self.name, content, self.author(), base=base)
        except BaseChanged as exc:
            raise self._shown(f"Nothing was written: {exc}.", exc.current, seen) from exc
        except (MemoryRefused, StoreBusy) as exc:
            raise ToolFailed(f"Nothing was written: {exc}") from exc
        except OSError as exc:
            raise ToolFailed(f"{self.name} could not be written: {exc.strerror}") from exc
        return FileWrite(content=content, change=change)

    def _shown(self, reason: str, content: bytes | None, seen: ReadFiles) -> ToolFailed:
        """The failure of a writer who did not know *content*, which is now known."""
        if content is None:
            return ToolFailed(f"{reason} It is not there any more.")
        seen.record(self.path, content)
        text = content.decode("utf-8", "replace")
        rest = f"\n[cut: {len(text):,} characters in all]" if len(text) > SHOWN else ""
        return ToolFailed(f"{reason} This is what stands there now; change that:\n{text[:SHOWN]}{rest}")


def _real(directory: Path) -> Path:
    return Path(os.path.realpath(directory))

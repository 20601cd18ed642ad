"""Changes of files and memories (notes in a memory store) by tools, allowed only if the model has read the file."""

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from coterie.agents.errors import ToolFailed
from coterie.files import replace_file
from coterie.memory.errors import BaseChanged, MemoryRefused, StoreBusy
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_store import MemoryStore
from coterie.suggestions import closest_match

FILE_LIMIT = 10_000
"""Maximum number of files in `ReadFiles`; the file recorded longest ago is removed, and must be read again."""
LARGEST = 8 * 1024 * 1024
"""Maximum bytes of a file that the file tools can change; larger files are not recorded as read."""
SHOWN = 20_000
"""Maximum characters of the current content of a memory that the error of a rejected write shows."""


@attrs.define(eq=False)
class ReadFiles:
    """Versions of the files that the model of one agent has read, so that tools overwrite no version it has not read.

    A version is a hash of the content, not the time of modification. Paths are absolute, with links followed.
    """

    _versions: dict[Path, bytes] = attrs.field(factory=dict, init=False, repr=False)
    _undrained: dict[Path, None] = attrs.field(factory=dict, init=False, repr=False)
    """Paths whose new version `take_changes` has not returned yet, in the order of recording."""

    def record(self, path: Path, content: bytes) -> None:
        """Record that the model has read (at least in part) or written the file *path* with the content *content*."""
        version = _version(content)
        if version != self._versions.get(path):
            self._undrained.pop(path, None)
            self._undrained[path] = None
        self._remember(path, version)

    def check(self, path: Path, content: bytes | None = None) -> None:
        """Raise `ToolFailed` unless the model has read the current version of the file *path*.

        *content* is the current content; None to read it from the file, which blocks and may raise `OSError`.
        """
        if path not in self._versions:
            raise ToolFailed(f"{path} has not been read yet. Read it first, then change it.")
        if _version(path.read_bytes() if content is None else content) != self._versions[path]:
            raise ToolFailed(f"{path} has changed since it was read. Read it again, then change it.")

    def take_changes(self) -> dict[str, str]:
        """Return the versions recorded since the last call, as path -> hash in hex, for the agent's transcript.

        Omits paths that are not UTF-8, which a transcript cannot store; such files must be read again after a resume.
        """
        drained = {str(path): self._versions[path].hex() for path in self._undrained if _is_utf8(path)}
        self._undrained.clear()
        return drained

    def known(self) -> dict[str, str]:
        """Return all versions as path -> hash in hex, for a fork (agent that continues this agent's conversation)."""
        return {str(path): version.hex() for path, version in self._versions.items() if _is_utf8(path)}

    def restore(self, versions: Mapping[str, str]) -> None:
        """Add *versions*, which `take_changes` returned in an earlier run. Raises `ValueError` for invalid hex."""
        for path, version in versions.items():
            self._remember(Path(path), bytes.fromhex(version))

    def _remember(self, path: Path, version: bytes) -> None:
        self._versions.pop(path, None)
        self._versions[path] = version
        if len(self._versions) > FILE_LIMIT:
            forgotten = next(iter(self._versions))
            del self._versions[forgotten]
            self._undrained.pop(forgotten, None)


def _version(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


@attrs.frozen(kw_only=True)
class FileVersion:
    """Content and permissions of a file, read before a tool changes the file."""

    text: str
    content: bytes
    mode: int | None = None


@attrs.frozen(kw_only=True)
class PlainFile:
    """A file outside the memory stores (directories of notes), as a tool reads and replaces it."""

    name: str
    """Path as the model gave it, for error messages."""
    path: Path

    def read(self, seen: ReadFiles) -> FileVersion | None:
        """Read the file before a change; None if it does not exist.

        Raises `ToolFailed` for a file that must not be changed: not a regular UTF-8 file, read-only, over LARGEST, not
        read by the model, or changed since then.
        """
        try:
            status = self.path.stat()
            self._check_changeable(status)
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise ToolFailed(f"{self.name} cannot be read: {exc.strerror}. Check its permissions.") from exc
        seen.check(self.path, content)
        return FileVersion(text=decoded(self.name, content), content=content, mode=stat.S_IMODE(status.st_mode))

    def write(self, content: bytes, existing: FileVersion | None, _seen: ReadFiles) -> None:
        """Replace the content of the file, or create it and its directory. Raises `ToolFailed` on a disk error."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, content, mode=None if existing is None else existing.mode)
        except OSError as exc:
            raise ToolFailed(f"{self.name} could not be written: {exc.strerror}. Tell the user.") from exc

    def _check_changeable(self, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise ToolFailed(f"{self.name} is a directory. Give the path of a file.")
        if not stat.S_ISREG(status.st_mode):
            raise ToolFailed(f"{self.name} is not a regular file, but a pipe or device. Give the path of a file.")
        # Checked here, because the rename needs write access only to the directory. Root too must not ignore the mode.
        if not status.st_mode & 0o222 or not os.access(self.path, os.W_OK):
            raise ToolFailed(f"{self.name} is read-only. Change another file, or ask the user to make it writable.")
        if status.st_size > LARGEST:
            raise ToolFailed(
                f"{self.name} has {status.st_size:,} bytes, over the limit of {LARGEST // 1024**2} MB. "
                "Change it with a command."
            )


def decoded(name: str, content: bytes) -> str:
    """Return *content* of the file *name* as text. Raises `ToolFailed` if it is not valid UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        raise ToolFailed(f"{name} is not valid UTF-8 (byte {exc.start:,}). Change it with a command.") from exc


def encoded(text: str) -> bytes:
    """Return *text*, the new content of a file, as UTF-8. Raises `ToolFailed` if it has an unpaired surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise ToolFailed(
            f"Nothing was written: character {exc.start:,} of the new text is an unpaired surrogate. Remove it."
        ) from exc


def missing_file_hint(path: Path) -> str:
    """Return a hint to append to the error that *path* does not exist: similar names in its directory. Blocks."""
    try:
        # An unprintable name may contain bytes that cannot be encoded in JSON.
        near = closest_match(path.name, [entry.name for entry in path.parent.iterdir() if entry.name.isprintable()])
    except (FileNotFoundError, NotADirectoryError):
        return f", and neither does the directory {path.parent}"
    except OSError:
        return ""
    return f"; did you mean {' or '.join(near)} in {path.parent}?" if near else f" in {path.parent}"


@attrs.frozen(kw_only=True)
class WritableMemory:
    """Memory stores (directories of notes for later sessions) that an agent may change with the file tools."""

    stores: tuple[MemoryStore, ...]
    author: Callable[[], Author]
    """Function that returns the author to record in the change log of the store for the next change."""
    on_change: Callable[[MemoryChange], None] = lambda _: None
    """Function that is called with each change of a memory after the change was written."""

    def find(self, path: Path) -> "StoredMemoryFile | None":
        """Return the memory file at the absolute *path*, which need not exist; None if *path* is in no memory store."""
        plain = Path(os.path.normpath(path))
        for store in self.stores:
            for place in dict.fromkeys((store.directory, _real(store.directory))):
                if plain.is_relative_to(place):
                    return StoredMemoryFile(store=store, name=plain.relative_to(place).as_posix(), author=self.author)
        return None

    def holds(self, path: Path) -> bool:
        """Return True if *path*, in which links are already followed, is inside one of the memory stores."""
        return any(path.is_relative_to(_real(store.directory)) for store in self.stores)


@attrs.frozen(kw_only=True)
class StoredMemoryFile:
    """A file in a memory store (directory of notes), as a tool reads and replaces it; rejects outdated writes."""

    store: MemoryStore
    name: str
    author: Callable[[], Author]

    @property
    def path(self) -> Path:
        """Absolute path of the file, with links in the path of the store followed; the store itself has no links."""
        return _real(self.store.directory) / self.name

    def read(self, seen: ReadFiles) -> FileVersion | None:
        """Read the file before a change; None if it is missing. Raises `ToolFailed`, such as for an unread version."""
        try:
            content = self.store.read(self.name)
        except MemoryRefused as exc:
            raise ToolFailed(f"This path cannot be a memory. Use another path: {exc}") from exc
        except OSError as exc:
            raise ToolFailed(f"The memory {self.name} cannot be read: {exc.strerror}. Tell the user.") from exc
        if content is None:
            return None
        try:
            seen.check(self.path, content)
        except ToolFailed as exc:
            raise self._rejected(exc.reason, content, seen) from exc
        return FileVersion(text=decoded(self.name, content), content=content)

    def write(self, content: bytes, existing: FileVersion | None, seen: ReadFiles) -> MemoryChange:
        """Replace the content; return the change. Raises `ToolFailed`, also if the content is no longer *existing*."""
        base = None if existing is None else existing.content
        try:
            return self.store.write(self.name, content, self.author(), base=base)
        except BaseChanged as exc:
            raise self._rejected(f"The memory was not changed: {exc}.", exc.current, seen) from exc
        except (MemoryRefused, StoreBusy) as exc:
            raise ToolFailed(f"The memory was not changed: {exc}") from exc
        except OSError as exc:
            raise ToolFailed(f"The memory {self.name} could not be written: {exc.strerror}. Tell the user.") from exc

    def _rejected(self, reason: str, content: bytes | None, seen: ReadFiles) -> ToolFailed:
        """Return the error for a write based on old content: shows *content* (None: deleted), records it as read."""
        if content is None:
            return ToolFailed(f"{reason} The file does not exist any longer; call Write to create it again.")
        seen.record(self.path, content)
        text = content.decode("utf-8", "replace")
        rest = f"\n[cut: {len(text):,} characters in all]" if len(text) > SHOWN else ""
        return ToolFailed(f"{reason} This is the current content; base your change on it:\n{text[:SHOWN]}{rest}")


def _real(directory: Path) -> Path:
    return Path(os.path.realpath(directory))

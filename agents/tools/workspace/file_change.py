"""Changes of files by a tool: the version before, and the write."""

import os
import stat
from pathlib import Path

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.workspace.read_tracking import LARGEST, ReadFiles
from coterie.files import replace_file
from coterie.memory.store.change import MemoryChange
from coterie.suggestions import closest_match


@attrs.frozen(kw_only=True)
class FileVersion:
    """A file as it is before it is changed."""

    text: str
    content: bytes
    mode: int | None = None


@attrs.frozen(kw_only=True)
class FileWrite:
    """What stands in a file now."""

    content: bytes
    change: MemoryChange | None = None
    """Of a memory: the change in its history."""


@attrs.frozen(kw_only=True)
class PlainFile:
    """A file that is nobody's but the project's."""

    name: str
    """As the model calls it."""
    path: Path

    def read(self, seen: ReadFiles) -> FileVersion | None:
        """What stands there; None if nothing does.

        Raises `ToolFailed` for what must not be changed: no text file, one that is read-only, or one that the model has
        not seen in this version.
        """
        try:
            status = self.path.stat()
            self._check_kind(status)
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise ToolFailed(f"{self.name} cannot be changed: {exc.strerror}") from exc
        seen.check(self.path, content)
        return FileVersion(text=decoded(self.name, content), content=content, mode=stat.S_IMODE(status.st_mode))

    def write(self, text: str, existing: FileVersion | None, _seen: ReadFiles) -> FileWrite:
        """Make *text* all that stands there, and the file and its directory if need be. Raises `ToolFailed`."""
        content = encoded(text)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, content, mode=None if existing is None else existing.mode)
        except OSError as exc:
            raise ToolFailed(f"{self.name} could not be written: {exc.strerror}") from exc
        return FileWrite(content=content)

    def _check_kind(self, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise ToolFailed(f"{self.name} is a directory. Give the path of a file.")
        if not stat.S_ISREG(status.st_mode):
            raise ToolFailed(f"{self.name} is not a regular file")
        # A rename asks for the right to change the directory only; and the superuser's right is no reason to use it.
        if not status.st_mode & 0o222 or not os.access(self.path, os.W_OK):
            raise ToolFailed(f"{self.name} is read-only")
        if status.st_size > LARGEST:
            raise ToolFailed(
                f"{self.name} has {status.st_size:,} bytes, over the {LARGEST // 1024**2} MB that can be changed here. "
                "Change it with a command."
            )


def decoded(name: str, content: bytes) -> str:
    """The text of a file that is to be changed. Raises `ToolFailed` if it is none."""
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        raise ToolFailed(f"{name} is not valid UTF-8 (byte {exc.start:,}), so it cannot be changed as text.") from exc


def encoded(text: str) -> bytes:
    """The bytes of a new text. Raises `ToolFailed` if it has none."""
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise ToolFailed(f"Nothing was written: character {exc.start:,} of the new text is half of a pair.") from exc


def missing_file_hint(path: Path) -> str:
    """What to say behind "*path* does not exist": what its directory has to offer. Blocks."""
    try:
        # A name that is not printable may be bytes that no JSON can carry.
        near = closest_match(path.name, [entry.name for entry in path.parent.iterdir() if entry.name.isprintable()])
    except (FileNotFoundError, NotADirectoryError):
        return f", and neither does the directory {path.parent}"
    except OSError:
        return ""
    return f"; did you mean {' or '.join(near)} in {path.parent}?" if near else f" in {path.parent}"

"""Changes of files by tools: the version before a change, and the write."""

import os
import stat
from pathlib import Path

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.workspace.read_tracking import LARGEST, ReadFiles
from coterie.files import replace_file
from coterie.suggestions import closest_match


@attrs.frozen(kw_only=True)
class FileVersion:
    """Content of a file before a change."""

    text: str
    content: bytes
    mode: int | None = None


@attrs.frozen(kw_only=True)
class PlainFile:
    """A file that is not a memory."""

    name: str
    """Path as given by the model."""
    path: Path

    def read(self, seen: ReadFiles) -> FileVersion | None:
        """Read the file; None if it does not exist.

        Raises `ToolFailed` for a file that must not be changed: not a text file, read-only, or changed since the model
        has read it.
        """
        try:
            status = self.path.stat()
            self._check_changeable(status)
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise ToolFailed(f"{self.name} cannot be changed: {exc.strerror}") from exc
        seen.check(self.path, content)
        return FileVersion(text=decoded(self.name, content), content=content, mode=stat.S_IMODE(status.st_mode))

    def write(self, content: bytes, existing: FileVersion | None, _seen: ReadFiles) -> None:
        """Replace the content; create the file and its directory if needed. Raises `ToolFailed`."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, content, mode=None if existing is None else existing.mode)
        except OSError as exc:
            raise ToolFailed(f"{self.name} could not be written: {exc.strerror}") from exc

    def _check_changeable(self, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise ToolFailed(f"{self.name} is a directory. Give the path of a file.")
        if not stat.S_ISREG(status.st_mode):
            raise ToolFailed(f"{self.name} is not a regular file")
        # Checked here, because the rename needs write access only to the directory. Root too must not ignore the mode.
        if not status.st_mode & 0o222 or not os.access(self.path, os.W_OK):
            raise ToolFailed(f"{self.name} is read-only")
        if status.st_size > LARGEST:
            raise ToolFailed(
                f"{self.name} has {status.st_size:,} bytes, over the limit of {LARGEST // 1024**2} MB. "
                "Change it with a command."
            )


def decoded(name: str, content: bytes) -> str:
    """Decode the content of a file. Raises `ToolFailed` if it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        raise ToolFailed(f"{name} is not valid UTF-8 (byte {exc.start:,}), so it cannot be changed as text.") from exc


def encoded(text: str) -> bytes:
    """Encode a new text as UTF-8. Raises `ToolFailed` for an unpaired surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise ToolFailed(
            f"Nothing was written: character {exc.start:,} of the new text is an unpaired surrogate."
        ) from exc


def missing_file_hint(path: Path) -> str:
    """Return the hint after "*path* does not exist": similar names in its directory. Blocks."""
    try:
        # An unprintable name may contain bytes that cannot be encoded in JSON.
        near = closest_match(path.name, [entry.name for entry in path.parent.iterdir() if entry.name.isprintable()])
    except (FileNotFoundError, NotADirectoryError):
        return f", and neither does the directory {path.parent}"
    except OSError:
        return ""
    return f"; did you mean {' or '.join(near)} in {path.parent}?" if near else f" in {path.parent}"

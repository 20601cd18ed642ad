"""The Write tool: a new file, or new content for one the model knows."""

import os
import stat
from pathlib import Path
from typing import ClassVar

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.schema import described
from coterie.agents.tools.seen import LARGEST, SeenFiles
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description
from coterie.files import replace_file


@attrs.frozen(kw_only=True)
class WriteInput:
    """What to put where."""

    file_path: str = attrs.field(metadata=described("The file, absolute or relative to the project directory."))
    content: str = attrs.field(metadata=described("All that is to stand in the file."))


@attrs.frozen(kw_only=True)
class Existing:
    """A file as it is before it is changed."""

    text: str
    mode: int


@attrs.frozen(kw_only=True)
class Written:
    """A change that has been made."""

    path: Path
    content: bytes
    report: str
    """What was done, in words for the model."""


class Write:
    """Creates a file, or replaces all that stands in one."""

    name: ClassVar = "Write"
    description: ClassVar = tool_description("write")
    input_type: ClassVar = WriteInput
    access: ClassVar[Access] = "edit"
    is_clearable: ClassVar = True
    result_cap: ClassVar[int | None] = RESULT_CAP

    def touches(self, arguments: WriteInput, workspace: Workspace) -> list[Path]:
        """The file."""
        return [workspace.locate(arguments.file_path)]

    async def run(self, arguments: WriteInput, workspace: Workspace) -> ToolResult:
        """Write the file whole or not at all; once begun it is finished, also when cancelled."""
        written = await trio.to_thread.run_sync(_write_sync, arguments, workspace)
        workspace.seen.note(written.path, written.content)
        return ToolResult(text=written.report)


def read_existing(file_path: str, path: Path, seen: SeenFiles) -> Existing | None:
    """What stands at *path*, which the model calls *file_path*; None if nothing does.

    Raises `ToolFailed` for what must not be changed: no text file, one that is read-only, or one that the model has
    not seen in this version.
    """
    try:
        status = path.stat()
        _check_kind(file_path, path, status)
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ToolFailed(f"{file_path} cannot be changed: {exc.strerror}") from exc
    seen.check(path, content)
    try:
        return Existing(text=content.decode(), mode=stat.S_IMODE(status.st_mode))
    except UnicodeDecodeError as exc:
        raise ToolFailed(
            f"{file_path} is not valid UTF-8 (byte {exc.start:,}), so it cannot be changed as text."
        ) from exc


def put_text(file_path: str, path: Path, text: str, mode: int | None) -> bytes:
    """Replace the file at *path*, or create it, and its directory too; returns the bytes that stand there now.

    A *mode* of None is that of any new file. Raises `ToolFailed`.
    """
    try:
        content = text.encode()
    except UnicodeEncodeError as exc:
        raise ToolFailed(f"Nothing was written: character {exc.start:,} of the new text is half of a pair.") from exc
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content, mode=mode)
    except OSError as exc:
        raise ToolFailed(f"{file_path} could not be written: {exc.strerror}") from exc
    return content


def _check_kind(file_path: str, path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ToolFailed(f"{file_path} is a directory. Give the path of a file.")
    if not stat.S_ISREG(status.st_mode):
        raise ToolFailed(f"{file_path} is not a regular file")
    # A rename asks for the right to change the directory only; and the superuser's right is no reason to use it.
    if not status.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise ToolFailed(f"{file_path} is read-only")
    if status.st_size > LARGEST:
        raise ToolFailed(
            f"{file_path} has {status.st_size:,} bytes, over the {LARGEST // 1024**2} MB that can be changed here. "
            "Change it with a command."
        )


def _write_sync(wanted: WriteInput, workspace: Workspace) -> Written:
    path = workspace.locate(wanted.file_path)
    existing = read_existing(wanted.file_path, path, workspace.seen)
    content = put_text(wanted.file_path, path, wanted.content, existing.mode if existing else None)
    lines = content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
    size = f"{lines:,} line{'s' * (lines != 1)}, {len(content):,} byte{'s' * (len(content) != 1)}"
    report = f"wrote {wanted.file_path}: {size} ({'replaced' if existing else 'created'})"
    return Written(path=path, content=content, report=report)

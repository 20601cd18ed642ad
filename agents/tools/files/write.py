"""The Write tool, and `change_file`, the function with which Write, Edit and NotebookEdit change a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.tool import BuiltInTool, ToolResult, Workspace
from coterie.agents.tools.workspace.file_change import FileVersion, encoded, missing_file_hint
from coterie.memory.store.change import MemoryChange

FileEdit = Callable[[FileVersion | None], tuple[str, str]]
"""Function that gets the current version of a file (None: missing) and returns its new text and a report."""


@attrs.frozen(kw_only=True)
class WriteInput:
    """Arguments of a call of the Write tool, which creates or replaces a file."""

    file_path: Annotated[str, "The file, absolute or relative to the project directory."]
    content: Annotated[str, "The complete new content of the file."]


async def change_file(name: str, workspace: Workspace, edit: FileEdit, *, must_exist: bool = True) -> ToolResult:
    """Replace the content of the file *name* with the text that *edit* returns; return the report of *edit*.

    The file is written completely or not at all. Once started, the change completes even if the call is cancelled.
    Raises `ToolFailed`, for example if *must_exist* and it is missing, or if the model has not read this version.
    """

    def change_sync() -> tuple[Path, bytes, MemoryChange | None, str]:
        target = workspace.target(name)
        existing = target.read(workspace.seen)
        if existing is None and must_exist:
            raise ToolFailed(f"{name} does not exist{missing_file_hint(target.path)}")
        text, report = edit(existing)
        content = encoded(text)
        return target.path, content, target.write(content, existing, workspace.seen), report

    path, content, change, report = await trio.to_thread.run_sync(change_sync)
    workspace.seen.record(path, content)
    if change is not None and workspace.memory is not None:
        workspace.memory.on_change(change)
    return ToolResult(text=report)


class Write(BuiltInTool, name="Write", input_type=WriteInput, access="edit", is_clearable=True):
    """Tool with which the model creates a file or replaces its whole content."""

    def paths_affected(self, arguments: WriteInput, workspace: Workspace) -> list[Path]:
        """Return the absolute path of the file to write, for the permission check."""
        return [workspace.target(arguments.file_path).path]

    async def run(self, arguments: WriteInput, workspace: Workspace) -> ToolResult:
        """Write the file and return a report. Raises `ToolFailed` if the model has not read the existing version."""

        def write(existing: FileVersion | None) -> tuple[str, str]:
            content = encoded(arguments.content)
            lines = content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
            size = f"{lines:,} line{'s' * (lines != 1)}, {len(content):,} byte{'s' * (len(content) != 1)}"
            report = f"wrote {arguments.file_path}: {size} ({'replaced' if existing else 'created'})"
            return arguments.content, report

        return await change_file(arguments.file_path, workspace, write, must_exist=False)

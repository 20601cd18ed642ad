"""The Write tool."""

from pathlib import Path
from typing import ClassVar

import attrs
import trio

from coterie.agents.tools.schema import described
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description
from coterie.memory.store.change import MemoryChange


@attrs.frozen(kw_only=True)
class WriteInput:
    """What to put where."""

    file_path: str = attrs.field(metadata=described("The file, absolute or relative to the project directory."))
    content: str = attrs.field(metadata=described("All that is to stand in the file."))


@attrs.frozen(kw_only=True)
class AppliedWrite:
    """A change that has been made."""

    path: Path
    content: bytes
    report: str
    """What was done, in words for the model."""
    change: MemoryChange | None = None
    """Of a memory: the change in its history."""

    def finish(self, workspace: Workspace) -> ToolResult:
        """Let *workspace* know of it, and whoever watches its memories; what the model is told."""
        workspace.seen.record(self.path, self.content)
        if self.change is not None and workspace.memory is not None:
            workspace.memory.on_change(self.change)
        return ToolResult(text=self.report)


class Write:
    """Creates a file, or replaces all that stands in one."""

    name: ClassVar = "Write"
    description: ClassVar = tool_description("write")
    input_type: ClassVar = WriteInput
    access: ClassVar[Access] = "edit"
    is_clearable: ClassVar = True
    result_cap: ClassVar[int | None] = RESULT_CAP

    def paths_affected(self, arguments: WriteInput, workspace: Workspace) -> list[Path]:
        """The file."""
        return [workspace.target(arguments.file_path).path]

    async def run(self, arguments: WriteInput, workspace: Workspace) -> ToolResult:
        """Write the file whole or not at all; once begun it is finished, also when cancelled."""
        return (await trio.to_thread.run_sync(_write_sync, arguments, workspace)).finish(workspace)


def _write_sync(wanted: WriteInput, workspace: Workspace) -> AppliedWrite:
    target = workspace.target(wanted.file_path)
    existing = target.read(workspace.seen)
    put = target.write(wanted.content, existing, workspace.seen)
    content = put.content
    lines = content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
    size = f"{lines:,} line{'s' * (lines != 1)}, {len(content):,} byte{'s' * (len(content) != 1)}"
    report = f"wrote {wanted.file_path}: {size} ({'replaced' if existing else 'created'})"
    return AppliedWrite(path=target.path, content=content, report=report, change=put.change)

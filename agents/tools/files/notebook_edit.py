"""The NotebookEdit tool: replaces, adds or deletes one cell."""

from pathlib import Path
from typing import ClassVar, Literal

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.files.notebook import SUFFIX, CellType, Notebook
from coterie.agents.tools.files.write import AppliedWrite
from coterie.agents.tools.schema import described
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description
from coterie.agents.tools.workspace.file_change import missing_file_hint
from coterie.agents.tools.workspace.read_tracking import LARGEST

EditMode = Literal["replace", "insert", "delete"]


@attrs.frozen(kw_only=True)
class NotebookEditInput:
    """Which cell, and what is to become of it."""

    notebook_path: str = attrs.field(metadata=described("The notebook, absolute or relative to the project directory."))
    cell_id: str | None = attrs.field(default=None, metadata=described("The id of the cell, as Read shows it."))
    cell_number: int | None = attrs.field(
        default=None,
        metadata=described("The number of the cell as Read shows it, from 1 on; needed where it has no id."),
    )
    new_source: str | None = attrs.field(
        default=None, metadata=described("All that is to stand in the cell; needed unless it is deleted.")
    )
    cell_type: CellType | None = attrs.field(
        default=None, metadata=described("What the cell is to be; needed for a new one, else it stays what it is.")
    )
    edit_mode: EditMode = attrs.field(
        default="replace",
        metadata=described(
            "Replace the cell, insert a new one behind it (or as the first, if none is named), delete it."
        ),
    )


class NotebookEdit:
    """Changes one cell of a notebook."""

    name: ClassVar = "NotebookEdit"
    description: ClassVar = tool_description("notebook_edit")
    input_type: ClassVar = NotebookEditInput
    access: ClassVar[Access] = "edit"
    is_clearable: ClassVar = True
    result_cap: ClassVar[int | None] = RESULT_CAP

    def paths_affected(self, arguments: NotebookEditInput, workspace: Workspace) -> list[Path]:
        """The notebook."""
        return [workspace.target(arguments.notebook_path).path]

    async def run(self, arguments: NotebookEditInput, workspace: Workspace) -> ToolResult:
        """Change the notebook whole or not at all; once begun it is finished, also when cancelled."""
        return (await trio.to_thread.run_sync(_edit_sync, arguments, workspace)).finish(workspace)


def _edit_sync(wanted: NotebookEditInput, workspace: Workspace) -> AppliedWrite:
    name = wanted.notebook_path
    if not name.endswith(SUFFIX):
        raise ToolFailed(f"{name} is no notebook: its name does not end with {SUFFIX}. Change other files with Edit.")
    target = workspace.target(name)
    existing = target.read(workspace.seen)
    if existing is None:
        raise ToolFailed(f"{name} does not exist{missing_file_hint(target.path)}")
    try:
        notebook = Notebook.read(existing.text)
    except ValueError as exc:
        raise ToolFailed(f"{name} cannot be changed as a notebook: {exc}. Mend it with Edit first.") from exc
    try:
        text, report = _changed(wanted, notebook)
    except ValueError as exc:
        raise ToolFailed(f"{name} was not changed: {exc}.") from exc
    if len(text) > LARGEST:
        raise ToolFailed(f"{name} would have more than the {LARGEST // 1024**2} MB that can be changed here.")
    put = target.write(text, existing, workspace.seen)
    return AppliedWrite(path=target.path, content=put.content, report=f"{report} in {name}", change=put.change)


def _changed(wanted: NotebookEditInput, notebook: Notebook) -> tuple[str, str]:
    """The new text, and what was done. Raises `ValueError` for what cannot be done."""
    is_named = wanted.cell_id is not None or wanted.cell_number is not None
    if wanted.edit_mode == "insert":
        after = notebook.find(wanted.cell_id, wanted.cell_number).number if is_named else 0
        return _inserted(wanted, notebook, after)
    if not is_named:
        raise ValueError(f"to {wanted.edit_mode} a cell, name it by cell_id or cell_number")
    cell = notebook.find(wanted.cell_id, wanted.cell_number)
    called = f"cell {cell.number}" if cell.id is None else f"cell {cell.number} (id {cell.id})"
    if wanted.edit_mode == "delete":
        return notebook.without(cell), f"deleted {called}; {len(notebook) - 1:,} remain"
    if wanted.new_source is None:
        raise ValueError("new_source is missing: give all that is to stand in the cell")
    text = notebook.replaced(cell, wanted.new_source, wanted.cell_type)
    if text == notebook.text:
        raise ValueError(f"{called} is like this already")
    is_run = bool(cell.outputs) or cell.execution_count is not None
    return text, f"replaced {called}{', and removed what the old code gave,' if is_run else ''}"


def _inserted(wanted: NotebookEditInput, notebook: Notebook, after: int) -> tuple[str, str]:
    if wanted.new_source is None or wanted.cell_type is None:
        missing = "new_source" if wanted.new_source is None else "cell_type"
        raise ValueError(f"{missing} is missing: a new cell needs both a source and a type (code, markdown or raw)")
    text = notebook.inserted(after, wanted.new_source, wanted.cell_type)
    cell = Notebook.read(text).cells[after]
    called = f"cell {cell.number}" if cell.id is None else f"cell {cell.number} (id {cell.id})"
    return text, f"inserted {called}, {cell.type}"

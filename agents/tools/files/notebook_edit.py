"""The NotebookEdit tool: replaces, inserts or deletes one cell of a Jupyter notebook."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.files.notebook import SUFFIX, CellType, Notebook
from coterie.agents.tools.files.write import change_file
from coterie.agents.tools.tool import BuiltInTool, ToolResult, Workspace
from coterie.agents.tools.workspace.file_change import LARGEST, FileVersion

EditMode = Literal["replace", "insert", "delete"]


@attrs.frozen(kw_only=True)
class NotebookEditInput:
    """Arguments of a call of the NotebookEdit tool, which changes one cell of a Jupyter notebook."""

    notebook_path: Annotated[str, "The notebook, absolute or relative to the project directory."]
    cell_id: Annotated[str | None, "The id of the cell, as shown by Read."] = None
    cell_number: Annotated[
        int | None, "The number of the cell as shown by Read, counted from 1; required if it has no id."
    ] = None
    new_source: Annotated[str | None, "The complete new source of the cell; required except for delete."] = None
    cell_type: Annotated[
        CellType | None, "The type of the cell; required for insert, otherwise unchanged if omitted."
    ] = None
    edit_mode: Annotated[
        EditMode, "Replace the cell, insert a new one after it (as the first if no cell is given), or delete it."
    ] = "replace"


class NotebookEdit(BuiltInTool, name="NotebookEdit", input_type=NotebookEditInput, access="edit", is_clearable=True):
    """Tool with which the model replaces, inserts or deletes one cell of a Jupyter notebook."""

    def paths_affected(self, arguments: NotebookEditInput, workspace: Workspace) -> list[Path]:
        """Return the absolute path of the notebook to change, for the permission check."""
        return [workspace.target(arguments.notebook_path).path]

    async def run(self, arguments: NotebookEditInput, workspace: Workspace) -> ToolResult:
        """Change the notebook file. Raises `ToolFailed` if it is invalid, was not read before, or lacks the cell."""
        name = arguments.notebook_path
        if not name.endswith(SUFFIX):
            raise ToolFailed(
                f"{name} is not a notebook: its name does not end with {SUFFIX}. Change other files with Edit."
            )
        return await change_file(name, workspace, partial(_edit, arguments))


def _edit(arguments: NotebookEditInput, existing: FileVersion | None) -> tuple[str, str]:
    assert existing is not None, "`change_file` passes an existing file"
    name = arguments.notebook_path
    try:
        notebook = Notebook.read(existing.text)
    except ValueError as exc:
        raise ToolFailed(f"{name} cannot be changed as a notebook: {exc}. Repair it with Edit first.") from exc
    try:
        text, report = _changed(arguments, notebook)
    except ValueError as exc:
        raise ToolFailed(f"{name} was not changed: {exc}.") from exc
    if len(text) > LARGEST:
        raise ToolFailed(f"The change would make {name} exceed {LARGEST // 1024**2} MB; insert less text")
    return text, f"{report} in {name}"


def _changed(arguments: NotebookEditInput, notebook: Notebook) -> tuple[str, str]:
    """Return the notebook text after the change, and a report for the model. Raises `ValueError` for a wrong call."""
    is_named = arguments.cell_id is not None or arguments.cell_number is not None
    if arguments.edit_mode == "insert":
        after = notebook.find(arguments.cell_id, arguments.cell_number).number if is_named else 0
        if arguments.new_source is None or arguments.cell_type is None:
            missing = "new_source" if arguments.new_source is None else "cell_type"
            raise ValueError(f"{missing} is missing: a new cell needs both a source and a type (code, markdown or raw)")
        text = notebook.inserted(after, arguments.new_source, arguments.cell_type)
        cell = Notebook.read(text).cells[after]
        return text, f"inserted {cell.label}, {cell.type}"
    if not is_named:
        raise ValueError(f"to {arguments.edit_mode} a cell, give its cell_id or cell_number")
    cell = notebook.find(arguments.cell_id, arguments.cell_number)
    if arguments.edit_mode == "delete":
        return notebook.without(cell), f"deleted {cell.label}; {len(notebook) - 1:,} remain"
    if arguments.new_source is None:
        raise ValueError("new_source is missing: give the complete source of the cell")
    text = notebook.replaced(cell, arguments.new_source, arguments.cell_type)
    if text == notebook.text:
        raise ValueError(f"{cell.label} already has this source and type; give another new_source or cell_type")
    has_run = bool(cell.outputs) or cell.execution_count is not None
    return text, f"replaced {cell.label}{', and removed the outputs of the old code,' if has_run else ''}"

"""Calls of one tool, as a model makes them."""

from pathlib import Path
from typing import Any

from coterie.agents.tools.files.read import Read
from coterie.agents.tools.tool import Tool, ToolResult, Workspace, call_tool


async def call(tool: Tool, workspace: Workspace, **arguments: Any) -> ToolResult:
    """Return the result of *tool*, which may be an error."""
    return await call_tool({tool.name: tool}, tool.name, arguments, workspace)


async def refusal(tool: Tool, workspace: Workspace, **arguments: Any) -> str:
    result = await call(tool, workspace, **arguments)
    assert result.is_error, result.text
    return result.text


async def seen_file(workspace: Workspace, content: str | bytes, name: str = "a.txt") -> Path:
    path = workspace.root / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    await call(Read(), workspace, file_path=name, limit=1)
    return path

"""Calls of one tool, as a model makes them, and the processes that they start."""

import contextlib
from pathlib import Path
from typing import Any

import psutil
import trio

from coterie.agents.tools.files.read import Read
from coterie.agents.tools.shell.bash import Bash
from coterie.agents.tools.tool import Tool, ToolResult, Workspace, call_tool
from coterie.process_identity import wait_ended


async def call(tool: Tool, workspace: Workspace, **arguments: Any) -> ToolResult:
    """Return the result of *tool*, which may be an error."""
    return await call_tool({tool.name: tool}, tool.name, arguments, workspace)


async def refusal(tool: Tool, workspace: Workspace, **arguments: Any) -> str:
    result = await call(tool, workspace, **arguments)
    assert result.is_error, result.text
    return result.text


async def bash(workspace: Workspace, command: str, *, grace: float = 0.1, **value: Any) -> ToolResult:
    with trio.fail_after(10):
        return await call(Bash(grace=grace), workspace, command=command, **value)


def is_running(pid: int) -> bool:
    """Return True if the process runs; a zombie has ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def wait_gone(pid: int) -> None:
    """Return when the process has ended, which need not be a child."""
    with contextlib.suppress(ProcessLookupError), trio.fail_after(10):
        await wait_ended(pid)


async def seen_file(workspace: Workspace, content: str | bytes, name: str = "a.txt") -> Path:
    path = workspace.root / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    await call(Read(), workspace, file_path=name, limit=1)
    return path

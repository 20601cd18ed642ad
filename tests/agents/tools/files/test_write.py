"""Tests of the Write tool, and of what Edit has in common with it."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from coterie.agents.tools.files.edit import Edit
from coterie.agents.tools.files.read import Read
from coterie.agents.tools.files.write import Write
from coterie.agents.tools.schema import parse_input
from coterie.agents.tools.tool import Tool, ToolResult, Workspace, call_tool
from coterie.agents.tools.workspace.file_change import LARGEST
from coterie.files import Operation, SeededFaults, file_faults
from tests.agents.tools.files.notebook_files import png
from tests.agents.tools.files.pdf_files import pdf

TOOLS: Mapping[str, Tool] = {"Read": Read(), "Write": Write(), "Edit": Edit()}
CHANGES = {"Write": {"content": "new\n"}, "Edit": {"old_string": "old", "new_string": "new"}}
"""Tool -> arguments that make "new" of "old"."""

each_tool = pytest.mark.parametrize("tool", CHANGES)


async def _write(workspace: Workspace, file_path: str, content: str) -> ToolResult:
    return await call_tool(TOOLS, "Write", {"file_path": file_path, "content": content}, workspace)


async def _change(workspace: Workspace, tool: str, file_path: str = "a.txt") -> ToolResult:
    return await call_tool(TOOLS, tool, {"file_path": file_path, **CHANGES[tool]}, workspace)


async def _refusal(workspace: Workspace, file_path: str, content: str = "new", tool: str = "Write") -> str:
    value = {"content": content} if tool == "Write" else CHANGES[tool]
    result = await call_tool(TOOLS, tool, {"file_path": file_path, **value}, workspace)
    assert result.is_error
    return result.text


async def _seen_file(workspace: Workspace, content: bytes = b"old\n") -> Path:
    path = workspace.root / "a.txt"
    path.write_bytes(content)
    assert not (await call_tool(TOOLS, "Read", {"file_path": "a.txt"}, workspace)).is_error
    return path


@pytest.mark.parametrize(
    ("content", "size"),
    [
        ("", "0 lines, 0 bytes"),
        ("é", "1 line, 2 bytes"),
        ("\n", "1 line, 1 byte"),
        ("one\r\ntwo\n", "2 lines, 9 bytes"),
        ("one\n\nthree", "3 lines, 10 bytes"),
    ],
)
async def test_new_file_has_exactly_the_content(content: str, size: str, workspace: Workspace) -> None:
    assert await _write(workspace, "a.txt", content) == ToolResult(text=f"wrote a.txt: {size} (created)")
    assert (workspace.root / "a.txt").read_bytes() == content.encode()


async def test_missing_directories_are_created(workspace: Workspace) -> None:
    await _write(workspace, "src/deep/a.py", "x = 1\n")
    assert (workspace.root / "src" / "deep" / "a.py").read_text() == "x = 1\n"


async def test_new_file_mode_follows_umask(workspace: Workspace) -> None:
    before = os.umask(0o027)
    try:
        await _write(workspace, "a.txt", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((workspace.root / "a.txt").stat().st_mode) == 0o640


async def test_read_file_is_replaced_and_keeps_mode(workspace: Workspace) -> None:
    path = await _seen_file(workspace)
    path.chmod(0o751)
    assert await _write(workspace, "a.txt", "new\n") == ToolResult(text="wrote a.txt: 1 line, 4 bytes (replaced)")
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751


async def test_written_file_counts_as_read(workspace: Workspace) -> None:
    for content in ("one", "two", "three"):
        assert not (await _write(workspace, "a.txt", content)).is_error
    assert (workspace.root / "a.txt").read_text() == "three"


@each_tool
async def test_unread_file_is_not_changed(tool: str, workspace: Workspace) -> None:
    (workspace.root / "a.txt").write_text("old")
    assert "Read it first" in await _refusal(workspace, "a.txt", tool=tool)
    assert (workspace.root / "a.txt").read_text() == "old"


@each_tool
async def test_file_changed_since_read_is_not_changed(tool: str, workspace: Workspace) -> None:
    path = await _seen_file(workspace)
    path.write_text("old 2")
    assert "changed since it was read" in await _refusal(workspace, "a.txt", tool=tool)
    assert path.read_text() == "old 2"


@each_tool
async def test_link_and_mode_of_its_target_are_kept(tool: str, workspace: Workspace) -> None:
    path = await _seen_file(workspace)
    path.chmod(0o751)
    (workspace.root / "link").symlink_to("a.txt")
    assert not (await _change(workspace, tool, "link")).is_error
    assert (workspace.root / "link").is_symlink()
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751


async def test_dangling_link_is_kept_and_target_created(workspace: Workspace) -> None:
    (workspace.root / "link").symlink_to("a.txt")
    assert not (await _write(workspace, "link", "new")).is_error
    assert (workspace.root / "link").is_symlink()
    assert (workspace.root / "a.txt").read_text() == "new"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".", "is a directory"),
        ("pipe", "not a regular file"),
        ("a.txt/b", "Not a directory"),
        ("x" * 300, "File name too long"),
    ],
    ids=["directory", "pipe", "path through file", "too long name"],
)
async def test_unusable_path_is_refused_without_blocking(path: str, reason: str, workspace: Workspace) -> None:
    (workspace.root / "a.txt").touch()
    os.mkfifo(workspace.root / "pipe")
    with trio.fail_after(5):
        assert reason in await _refusal(workspace, path)


@each_tool
async def test_read_only_file_is_refused(tool: str, workspace: Workspace) -> None:
    path = await _seen_file(workspace)
    path.chmod(0o444)
    assert await _refusal(workspace, "a.txt", tool=tool) == "a.txt is read-only"
    assert path.read_text() == "old\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"caf\xe9\n", "not valid UTF-8 (byte 3)"), (png(), "not valid UTF-8"), (pdf(), "not valid UTF-8")],
    ids=["text", "image", "PDF"],
)
async def test_binary_file_counts_as_read_but_is_refused(content: bytes, reason: str, workspace: Workspace) -> None:
    path = await _seen_file(workspace, content)
    assert reason in await _refusal(workspace, "a.txt")
    assert path.read_bytes() == content


async def test_huge_file_is_refused(workspace: Workspace) -> None:
    with (workspace.root / "a.txt").open("wb") as file:
        file.truncate(LARGEST + 1)
    assert "8,388,609 bytes, over the limit of 8 MB" in await _refusal(workspace, "a.txt")


async def test_unpaired_surrogate_is_refused_without_write(workspace: Workspace) -> None:
    assert "character 2 of the new text" in await _refusal(workspace, "a.txt", f"ok{chr(0xD800)}")
    assert not (workspace.root / "a.txt").exists()


@each_tool
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("full", "No space left"), ("torn", "only "), ("rename", "Input/output error"), ("fsync", "Input/output")],
)
async def test_failed_write_is_reported_and_keeps_old_file(
    tool: str, fault: str, reason: str, workspace: Workspace
) -> None:
    path = await _seen_file(workspace)
    with file_faults(SeededFaults.from_mapping({"seed": 1, fault: 1.0})):
        assert f"a.txt could not be written: {reason}" in await _refusal(workspace, "a.txt", tool=tool)
        assert "could not be written" in await _refusal(workspace, "b.txt")
    assert path.read_text() == "old\n"
    assert os.listdir(workspace.root) == ["a.txt"]  # noqa: PTH208 - names only
    assert not (await _change(workspace, tool)).is_error


@each_tool
async def test_started_write_completes_although_cancelled(tool: str, workspace: Workspace) -> None:
    """The fault hook cancels the call in the middle of the write."""

    class Cancelling:
        def before(self, operation: Operation, path: Path, size: int) -> int:  # noqa: ARG002 - the interface of a hook
            if operation == "rename":
                trio.from_thread.run_sync(scope.cancel)
            return size

    path = await _seen_file(workspace)
    with trio.CancelScope() as scope, file_faults(Cancelling()):
        result = await _change(workspace, tool)
    assert scope.cancel_called
    assert not result.is_error
    assert path.read_text() == "new\n"
    workspace.seen.check(path)


@each_tool
def test_affected_path_is_link_target(tool: str, workspace: Workspace) -> None:
    (workspace.root / "link").symlink_to("a.txt")
    arguments = parse_input(TOOLS[tool].input_type, {"file_path": "link", **CHANGES[tool]})
    assert TOOLS[tool].paths_affected(arguments, workspace) == [workspace.root / "a.txt"]

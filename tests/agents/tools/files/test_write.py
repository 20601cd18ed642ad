"""Tests of the Write tool, and of what Edit has in common with it."""

import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from coterie.agents.tools.files.edit import Edit
from coterie.agents.tools.files.write import Write
from coterie.agents.tools.schema import parse_input
from coterie.agents.tools.tool import Tool, ToolResult, Workspace
from coterie.agents.tools.workspace.read_tracking import LARGEST
from coterie.files import Operation, SeededFaults, file_faults
from tests.agents.tools.files.notebook_files import png
from tests.agents.tools.files.pdf_files import pdf
from tests.agents.tools.tool_calls import call, refusal, seen_file

CHANGES: dict[str, tuple[Tool, dict[str, Any]]] = {
    "Write": (Write(), {"content": "new\n"}),
    "Edit": (Edit(), {"old_string": "old", "new_string": "new"}),
}
"""Tools, with arguments that make "new" of "old"."""

each_tool = pytest.mark.parametrize(("tool", "change"), CHANGES.values(), ids=CHANGES)

_write, _refusal = partial(call, Write()), partial(refusal, Write(), content="new")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


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
    """Missing directories are created, and the mode follows the umask."""
    before = os.umask(0o027)
    try:
        result = await _write(workspace, file_path="src/deep/a.txt", content=content)
    finally:
        os.umask(before)
    assert result == ToolResult(text=f"wrote src/deep/a.txt: {size} (created)")
    path = workspace.root / "src/deep/a.txt"
    assert (path.read_bytes(), _mode(path)) == (content.encode(), 0o640)


async def test_read_file_is_replaced_and_written_one_counts_as_read(workspace: Workspace) -> None:
    path = await seen_file(workspace, "old\n")
    result = await _write(workspace, file_path="a.txt", content="new\n")
    assert result == ToolResult(text="wrote a.txt: 1 line, 4 bytes (replaced)")
    assert not (await _write(workspace, file_path="a.txt", content="three")).is_error
    assert path.read_text() == "three"


@each_tool
async def test_unread_or_changed_file_is_not_changed(tool: Tool, change: dict[str, Any], workspace: Workspace) -> None:
    (workspace.root / "a.txt").write_text("old")
    assert "Read it first" in await refusal(tool, workspace, file_path="a.txt", **change)
    path = await seen_file(workspace, "old\n")
    path.write_text("old 2")
    assert "changed since it was read" in await refusal(tool, workspace, file_path="a.txt", **change)
    assert path.read_text() == "old 2"


@each_tool
async def test_link_and_mode_of_its_target_are_kept(tool: Tool, change: dict[str, Any], workspace: Workspace) -> None:
    path = await seen_file(workspace, "old\n")
    path.chmod(0o751)
    (workspace.root / "link").symlink_to("a.txt")
    arguments = parse_input(tool.input_type, {"file_path": "link", **change})
    assert tool.paths_affected(arguments, workspace) == [path]
    assert not (await call(tool, workspace, file_path="link", **change)).is_error
    assert (workspace.root / "link").is_symlink()
    assert (path.read_text(), _mode(path)) == ("new\n", 0o751)


async def test_dangling_link_is_kept_and_target_created(workspace: Workspace) -> None:
    (workspace.root / "link").symlink_to("a.txt")
    assert not (await _write(workspace, file_path="link", content="new")).is_error
    assert (workspace.root / "link").is_symlink()
    assert (workspace.root / "a.txt").read_text() == "new"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".", "is a directory"),
        ("pipe", "not a regular file"),
        ("a.txt/b", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("huge", "8,388,609 bytes, over the limit of 8 MB"),
    ],
    ids=["directory", "pipe", "path through file", "too long name", "huge"],
)
async def test_unusable_path_is_refused_without_blocking(path: str, reason: str, workspace: Workspace) -> None:
    (workspace.root / "a.txt").touch()
    os.mkfifo(workspace.root / "pipe")
    with (workspace.root / "huge").open("wb") as file:
        file.truncate(LARGEST + 1)
    with trio.fail_after(5):
        assert reason in await _refusal(workspace, file_path=path)


@each_tool
async def test_read_only_file_is_refused(tool: Tool, change: dict[str, Any], workspace: Workspace) -> None:
    path = await seen_file(workspace, "old\n")
    path.chmod(0o444)
    assert await refusal(tool, workspace, file_path="a.txt", **change) == "a.txt is read-only"
    assert path.read_text() == "old\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"caf\xe9\n", "not valid UTF-8 (byte 3)"), (png(), "not valid UTF-8"), (pdf(), "not valid UTF-8")],
    ids=["text", "image", "PDF"],
)
async def test_binary_file_counts_as_read_but_is_refused(content: bytes, reason: str, workspace: Workspace) -> None:
    path = await seen_file(workspace, content)
    assert reason in await _refusal(workspace, file_path="a.txt")
    assert path.read_bytes() == content


async def test_unpaired_surrogate_is_refused_without_write(workspace: Workspace) -> None:
    assert "character 2 of the new text" in await _refusal(workspace, file_path="a.txt", content=f"ok{chr(0xD800)}")
    assert not (workspace.root / "a.txt").exists()


@each_tool
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("full", "No space left"), ("torn", "only "), ("rename", "Input/output error"), ("fsync", "Input/output")],
)
async def test_failed_write_is_reported_and_keeps_old_file(
    tool: Tool, change: dict[str, Any], fault: str, reason: str, workspace: Workspace
) -> None:
    path = await seen_file(workspace, "old\n")
    with file_faults(SeededFaults.from_mapping({"seed": 1, fault: 1.0})):
        told = await refusal(tool, workspace, file_path="a.txt", **change)
        assert f"a.txt could not be written: {reason}" in told
        assert "could not be written" in await _refusal(workspace, file_path="b.txt")
    assert path.read_text() == "old\n"
    assert os.listdir(workspace.root) == ["a.txt"]  # noqa: PTH208 - names only
    assert not (await call(tool, workspace, file_path="a.txt", **change)).is_error


@each_tool
async def test_started_write_completes_although_cancelled(
    tool: Tool, change: dict[str, Any], workspace: Workspace
) -> None:
    """The fault hook cancels the call in the middle of the write."""

    class Cancelling:
        def before(self, operation: Operation, path: Path, size: int) -> int:  # noqa: ARG002 - the interface of a hook
            if operation == "rename":
                trio.from_thread.run_sync(scope.cancel)
            return size

    path = await seen_file(workspace, "old\n")
    with trio.CancelScope() as scope, file_faults(Cancelling()):
        result = await call(tool, workspace, file_path="a.txt", **change)
    assert scope.cancel_called
    assert not result.is_error
    assert path.read_text() == "new\n"
    workspace.seen.check(path)

"""Tests of the Write tool."""

import os
import stat
from pathlib import Path

import pytest
import trio

from coterie.agents.tools.files.read import Read
from coterie.agents.tools.files.write import Write, WriteInput
from coterie.agents.tools.tool import ToolResult, Workspace, call_tool
from coterie.agents.tools.workspace.read_tracking import LARGEST
from coterie.files import Operation, SeededFaults, file_faults


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path, scratch=tmp_path)


async def _write(workspace: Workspace, file_path: str, content: str) -> ToolResult:
    value = {"file_path": file_path, "content": content}
    return await call_tool({"Write": Write()}, "Write", value, workspace)


async def _refusal(workspace: Workspace, file_path: str, content: str = "new") -> str:
    result = await _write(workspace, file_path, content)
    assert result.is_error
    return result.text


async def _read(workspace: Workspace, file_path: str) -> None:
    result = await call_tool({"Read": Read()}, "Read", {"file_path": file_path}, workspace)
    assert not result.is_error


async def _seen_file(workspace: Workspace, content: bytes = b"old\n") -> Path:
    path = workspace.root / "a.txt"
    path.write_bytes(content)
    await _read(workspace, "a.txt")
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


async def test_unread_file_is_not_replaced(workspace: Workspace) -> None:
    (workspace.root / "a.txt").write_text("precious")
    assert "Read it first" in await _refusal(workspace, "a.txt")
    assert (workspace.root / "a.txt").read_text() == "precious"


async def test_file_changed_since_read_is_not_replaced(workspace: Workspace) -> None:
    path = await _seen_file(workspace)
    path.write_text("newer")
    assert "changed since it was read" in await _refusal(workspace, "a.txt")
    assert path.read_text() == "newer"


async def test_link_is_kept_and_target_replaced(workspace: Workspace) -> None:
    path = await _seen_file(workspace)
    (workspace.root / "link").symlink_to("a.txt")
    assert not (await _write(workspace, "link", "new")).is_error
    assert (workspace.root / "link").is_symlink()
    assert path.read_text() == "new"


async def test_dangling_link_is_kept_and_target_created(workspace: Workspace) -> None:
    (workspace.root / "link").symlink_to("a.txt")
    assert not (await _write(workspace, "link", "new")).is_error
    assert (workspace.root / "link").is_symlink()
    assert (workspace.root / "a.txt").read_text() == "new"


async def test_directory_is_refused(workspace: Workspace) -> None:
    assert "is a directory" in await _refusal(workspace, ".")


async def test_pipe_is_refused_without_blocking(workspace: Workspace) -> None:
    os.mkfifo(workspace.root / "pipe")
    with trio.fail_after(5):
        assert "not a regular file" in await _refusal(workspace, "pipe")


async def test_read_only_file_is_refused(workspace: Workspace) -> None:
    path = await _seen_file(workspace)
    path.chmod(0o444)
    assert await _refusal(workspace, "a.txt") == "a.txt is read-only"
    assert path.read_text() == "old\n"


async def test_non_utf8_file_is_refused(workspace: Workspace) -> None:
    path = await _seen_file(workspace, b"caf\xe9\n")
    assert "not valid UTF-8 (byte 3)" in await _refusal(workspace, "a.txt")
    assert path.read_bytes() == b"caf\xe9\n"


async def test_huge_file_is_refused(workspace: Workspace) -> None:
    with (workspace.root / "a.txt").open("wb") as file:
        file.truncate(LARGEST + 1)
    assert "8,388,609 bytes, over the limit of 8 MB" in await _refusal(workspace, "a.txt")


async def test_path_through_file_is_refused_with_system_error(workspace: Workspace) -> None:
    (workspace.root / "a.txt").touch()
    assert "Not a directory" in await _refusal(workspace, "a.txt/b")


async def test_too_long_name_is_refused(workspace: Workspace) -> None:
    assert "File name too long" in await _refusal(workspace, "x" * 300)


async def test_unpaired_surrogate_is_refused_without_write(workspace: Workspace) -> None:
    assert "character 2 of the new text" in await _refusal(workspace, "a.txt", f"ok{chr(0xD800)}")
    assert not (workspace.root / "a.txt").exists()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("full", "No space left"), ("torn", "only "), ("rename", "Input/output error"), ("fsync", "Input/output")],
)
async def test_failed_write_is_reported_and_keeps_old_file(fault: str, reason: str, workspace: Workspace) -> None:
    path = await _seen_file(workspace)
    with file_faults(SeededFaults.from_mapping({"seed": 1, fault: 1.0})):
        assert f"a.txt could not be written: {reason}" in await _refusal(workspace, "a.txt")
        assert "could not be written" in await _refusal(workspace, "b.txt")
    assert path.read_text() == "old\n"
    assert os.listdir(workspace.root) == ["a.txt"]  # noqa: PTH208 - names only
    assert not (await _write(workspace, "a.txt", "new")).is_error


async def test_started_write_completes_although_cancelled(workspace: Workspace) -> None:
    """The fault hook cancels the call in the middle of the write."""

    class Cancelling:
        def before(self, operation: Operation, path: Path, size: int) -> int:  # noqa: ARG002 - the interface of a hook
            if operation == "rename":
                trio.from_thread.run_sync(scope.cancel)
            return size

    with trio.CancelScope() as scope, file_faults(Cancelling()):
        result = await _write(workspace, "a.txt", "new")
    assert scope.cancel_called
    assert not result.is_error
    assert (workspace.root / "a.txt").read_text() == "new"
    workspace.seen.check(workspace.root / "a.txt")


def test_affected_path_is_link_target(workspace: Workspace) -> None:
    (workspace.root / "link").symlink_to("a.txt")
    assert Write().paths_affected(WriteInput(file_path="link", content=""), workspace) == [workspace.root / "a.txt"]

"""Write creates files, and replaces only those whose content the model knows."""

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
async def test_a_new_file_has_exactly_the_content(content: str, size: str, workspace: Workspace) -> None:
    assert await _write(workspace, "a.txt", content) == ToolResult(text=f"wrote a.txt: {size} (created)")
    assert (workspace.root / "a.txt").read_bytes() == content.encode()


async def test_missing_directories_are_made(workspace: Workspace) -> None:
    await _write(workspace, "src/deep/a.py", "x = 1\n")
    assert (workspace.root / "src" / "deep" / "a.py").read_text() == "x = 1\n"


async def test_a_new_file_has_the_mode_that_the_umask_leaves(workspace: Workspace) -> None:
    before = os.umask(0o027)
    try:
        await _write(workspace, "a.txt", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((workspace.root / "a.txt").stat().st_mode) == 0o640


async def test_a_file_that_was_read_is_replaced_and_keeps_its_mode(workspace: Workspace) -> None:
    path = await _seen_file(workspace)
    path.chmod(0o751)
    assert await _write(workspace, "a.txt", "new\n") == ToolResult(text="wrote a.txt: 1 line, 4 bytes (replaced)")
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751


async def test_what_was_written_counts_as_seen(workspace: Workspace) -> None:
    for content in ("one", "two", "three"):
        assert not (await _write(workspace, "a.txt", content)).is_error
    assert (workspace.root / "a.txt").read_text() == "three"


async def test_a_file_never_read_is_not_replaced(workspace: Workspace) -> None:
    (workspace.root / "a.txt").write_text("precious")
    assert "Read it first" in await _refusal(workspace, "a.txt")
    assert (workspace.root / "a.txt").read_text() == "precious"


async def test_a_file_that_changed_since_it_was_read_is_not_replaced(workspace: Workspace) -> None:
    path = await _seen_file(workspace)
    path.write_text("newer")
    assert "changed since it was read" in await _refusal(workspace, "a.txt")
    assert path.read_text() == "newer"


async def test_a_link_stays_and_its_target_is_replaced(workspace: Workspace) -> None:
    path = await _seen_file(workspace)
    (workspace.root / "link").symlink_to("a.txt")
    assert not (await _write(workspace, "link", "new")).is_error
    assert (workspace.root / "link").is_symlink()
    assert path.read_text() == "new"


async def test_a_link_to_nothing_stays_and_its_target_is_created(workspace: Workspace) -> None:
    (workspace.root / "link").symlink_to("a.txt")
    assert not (await _write(workspace, "link", "new")).is_error
    assert (workspace.root / "link").is_symlink()
    assert (workspace.root / "a.txt").read_text() == "new"


async def test_a_directory_is_refused(workspace: Workspace) -> None:
    assert "is a directory" in await _refusal(workspace, ".")


async def test_a_pipe_is_refused_and_does_not_block(workspace: Workspace) -> None:
    os.mkfifo(workspace.root / "pipe")
    with trio.fail_after(5):
        assert "not a regular file" in await _refusal(workspace, "pipe")


async def test_a_read_only_file_is_refused(workspace: Workspace) -> None:
    path = await _seen_file(workspace)
    path.chmod(0o444)
    assert await _refusal(workspace, "a.txt") == "a.txt is read-only"
    assert path.read_text() == "old\n"


async def test_a_file_that_is_not_utf8_is_refused(workspace: Workspace) -> None:
    path = await _seen_file(workspace, b"caf\xe9\n")
    assert "not valid UTF-8 (byte 3)" in await _refusal(workspace, "a.txt")
    assert path.read_bytes() == b"caf\xe9\n"


async def test_a_huge_file_is_refused(workspace: Workspace) -> None:
    with (workspace.root / "a.txt").open("wb") as file:
        file.truncate(LARGEST + 1)
    assert "8,388,609 bytes, over the limit of 8 MB" in await _refusal(workspace, "a.txt")


async def test_a_path_through_a_file_is_refused_with_the_systems_reason(workspace: Workspace) -> None:
    (workspace.root / "a.txt").touch()
    assert "Not a directory" in await _refusal(workspace, "a.txt/b")


async def test_a_name_that_is_too_long_is_refused(workspace: Workspace) -> None:
    assert "File name too long" in await _refusal(workspace, "x" * 300)


async def test_half_a_character_is_refused_and_nothing_written(workspace: Workspace) -> None:
    assert "character 2 of the new text" in await _refusal(workspace, "a.txt", f"ok{chr(0xD800)}")
    assert not (workspace.root / "a.txt").exists()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("full", "No space left"), ("torn", "only "), ("rename", "Input/output error"), ("fsync", "Input/output")],
)
async def test_a_failed_write_says_why_and_leaves_the_old_file(fault: str, reason: str, workspace: Workspace) -> None:
    path = await _seen_file(workspace)
    with file_faults(SeededFaults.from_mapping({"seed": 1, fault: 1.0})):
        assert f"a.txt could not be written: {reason}" in await _refusal(workspace, "a.txt")
        assert "could not be written" in await _refusal(workspace, "b.txt")
    assert path.read_text() == "old\n"
    assert os.listdir(workspace.root) == ["a.txt"]  # noqa: PTH208 - names only
    assert not (await _write(workspace, "a.txt", "new")).is_error


async def test_a_write_that_has_begun_is_finished_though_cancelled(workspace: Workspace) -> None:
    """The fault hook stands in the middle of the write, and cancels it from there."""

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


def test_a_call_touches_the_file_behind_its_links(workspace: Workspace) -> None:
    (workspace.root / "link").symlink_to("a.txt")
    assert Write().paths_affected(WriteInput(file_path="link", content=""), workspace) == [workspace.root / "a.txt"]

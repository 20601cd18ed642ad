"""Tests of the tracking of read file versions."""

import os
from pathlib import Path

import pytest
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.files.read import Read
from coterie.agents.tools.tool import Workspace, call_tool
from coterie.agents.tools.workspace.file_change import FILE_LIMIT, LARGEST, ReadFiles


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    return path


@pytest.fixture
def seen(path: Path) -> ReadFiles:
    """Files read by an agent that has seen the version "one"."""
    seen = ReadFiles()
    seen.record(path, b"one\n")
    return seen


def test_unread_file_must_be_read_first(path: Path) -> None:
    with pytest.raises(ToolFailed, match=r"has not been read yet\. Read it first"):
        ReadFiles().check(path)


def test_current_version_passes_even_if_touched(path: Path, seen: ReadFiles) -> None:
    seen.check(path)
    os.utime(path, ns=(1, 1))
    seen.check(path)


def test_changed_file_must_be_read_again(path: Path, seen: ReadFiles) -> None:
    """A change is also detected if time and size are the same."""
    before = path.stat()
    path.write_text("two\n")
    with pytest.raises(ToolFailed, match=r"has changed since it was read\. Read it again"):
        seen.check(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ToolFailed, match="has changed"):
        seen.check(path)
    seen.record(path, b"two\n")
    seen.check(path)


def test_given_content_is_checked_instead_of_file(path: Path, seen: ReadFiles) -> None:
    with pytest.raises(ToolFailed, match="has changed"):
        seen.check(path, b"two\n")
    path.unlink()
    seen.check(path, b"one\n")


def test_oldest_file_is_forgotten_and_not_taken_over_limit() -> None:
    seen = ReadFiles()
    for number in range(FILE_LIMIT):
        seen.record(Path(f"/{number}"), b"")
    seen.record(Path("/0"), b"again")
    seen.record(Path("/new"), b"")
    seen.check(Path("/0"), b"again")
    seen.check(Path("/2"), b"")
    with pytest.raises(ToolFailed, match="not been read"):
        seen.check(Path("/1"), b"")
    taken = seen.take_changes()
    assert (len(taken), "/1" in taken) == (FILE_LIMIT, False)


def test_changes_are_taken_once_and_can_be_restored(path: Path) -> None:
    seen, resumed = ReadFiles(), ReadFiles()
    seen.record(Path("/other"), b"")
    seen.record(path, b"old\n")
    seen.record(path, b"one\n")
    drained = seen.take_changes()
    assert list(drained) == ["/other", str(path)]
    resumed.restore(drained)
    resumed.check(path)
    with pytest.raises(ToolFailed, match="has changed"):
        resumed.check(path, b"old\n")
    for each in (seen, resumed):
        each.record(path, b"one\n")
        assert each.take_changes() == {}
        each.record(path, b"two\n")
        assert list(each.take_changes()) == [str(path)]


def test_non_utf8_path_is_tracked_but_not_taken() -> None:
    seen = ReadFiles()
    path = Path(os.fsdecode(b"/caf\xe9"))
    seen.record(path, b"")
    seen.check(path, b"")
    assert seen.take_changes() == {}


async def _read(workspace: Workspace, **value: object) -> bool:
    return not (await call_tool({"Read": Read()}, "Read", {"file_path": "a.txt", **value}, workspace)).is_error


@pytest.mark.parametrize("value", [{}, {"offset": 1, "limit": 1}])
async def test_file_shown_by_read_is_recorded_even_in_part(
    path: Path, workspace: Workspace, value: dict[str, int]
) -> None:
    other = Workspace(root=path.parent, scratch=path.parent)
    assert await _read(workspace, **value)
    workspace.seen.check(path)
    with pytest.raises(ToolFailed, match="not been read"):
        other.seen.check(path)


async def test_file_that_read_did_not_show_is_not_recorded(path: Path, workspace: Workspace) -> None:
    assert not await _read(workspace, offset=5)
    with trio.CancelScope() as scope:
        scope.cancel()
        await _read(workspace)
    with pytest.raises(ToolFailed, match="not been read"):
        workspace.seen.check(path)


async def test_too_large_file_is_shown_but_not_recorded(path: Path, workspace: Workspace) -> None:
    (workspace.root / "a.txt").write_bytes(b"x\n" * (LARGEST // 2 + 1))
    assert await _read(workspace, limit=1)
    with pytest.raises(ToolFailed, match="not been read"):
        workspace.seen.check(path)

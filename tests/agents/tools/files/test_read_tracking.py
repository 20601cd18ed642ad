"""Tests of the tracking of read file versions."""

import os
from functools import partial
from pathlib import Path

import pytest
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.files.read import Read
from coterie.agents.tools.tool import Workspace
from coterie.agents.tools.workspace.read_tracking import FILE_LIMIT, LARGEST, ReadFiles
from tests.agents.tools.tool_calls import call

_read = partial(call, Read(), file_path="a.txt")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    return path


def test_changed_file_must_be_read_again(path: Path) -> None:
    """A change is also detected if time and size are the same; a touched file is no changed one."""
    seen = ReadFiles()
    seen.record(path, b"one\n")
    os.utime(path, ns=(1, 1))
    seen.check(path)
    path.write_text("two\n")
    with pytest.raises(ToolFailed, match=r"has changed since it was read\. Read it again"):
        seen.check(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(ToolFailed, match="has changed"):
        seen.check(path)
    seen.record(path, b"two\n")
    seen.check(path)
    with pytest.raises(ToolFailed, match="has changed"):
        seen.check(path, b"given instead of the file")
    path.unlink()
    seen.check(path, b"two\n")


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
    latin = Path(os.fsdecode(b"/caf\xe9"))
    seen.record(latin, b"")
    seen.check(latin, b"")
    assert seen.take_changes() == {}, "a path that is not UTF-8 cannot be recorded"


async def test_file_shown_by_read_is_recorded_for_its_agent_alone(path: Path, workspace: Workspace) -> None:
    other = Workspace(root=path.parent, scratch=path.parent)
    assert (await _read(workspace, offset=5)).is_error
    with trio.CancelScope() as scope:
        scope.cancel()
        await _read(workspace)
    with pytest.raises(ToolFailed, match="not been read"):
        workspace.seen.check(path)
    for each, value in ((workspace, {}), (other, {"offset": 1, "limit": 1})):
        with pytest.raises(ToolFailed, match="not been read"):
            each.seen.check(path)
        assert not (await _read(each, **value)).is_error
        each.seen.check(path)


async def test_too_large_file_is_shown_but_not_recorded(workspace: Workspace) -> None:
    path = workspace.root / "a.txt"
    path.write_bytes(b"x\n" * (LARGEST // 2 + 1))
    assert not (await _read(workspace, limit=1)).is_error
    with pytest.raises(ToolFailed, match="not been read"):
        workspace.seen.check(path)

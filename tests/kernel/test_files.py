import errno
import os
import stat
from pathlib import Path

import pytest

from coterie.files import Appender, Operation, TornWrite, file_faults, replace_file
from tests.seeded_faults import SeededFaults


def test_replaced_file_has_new_content_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    replace_file(path, b"old")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["roster.json"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666, 0o755, 0o444])
def test_replaced_file_has_exactly_requested_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "script"
    before = os.umask(0o027)
    try:
        replace_file(path, b"new", mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("fault", ["torn", "full", "fsync", "rename"])
def test_failed_replacement_keeps_old_file_without_draft(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "roster.json"
    replace_file(path, b"old")
    faults = SeededFaults.from_mapping({"seed": 1, fault: 1.0})
    with file_faults(faults), pytest.raises(OSError, match=r"\w") as caught:
        replace_file(path, b"new content")
    assert fault != "full" or caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["roster.json"]


def test_hook_sees_every_operation_and_the_final_mode_before_the_content(tmp_path: Path) -> None:
    seen: list[Operation] = []
    modes: list[int] = []

    class Watching:
        def before(self, operation: Operation, path: Path, size: int) -> int:
            assert path.is_relative_to(tmp_path)
            seen.append(operation)
            if operation == "write":
                modes.append(stat.S_IMODE(path.stat().st_mode))
            return size

    with file_faults(Watching()):
        replace_file(tmp_path / "secret", b"x", mode=0o600)
    replace_file(tmp_path / "secret", b"y")
    assert seen == ["write", "fsync", "rename", "fsync"]
    assert modes == [0o600]


def test_torn_append_leaves_part_that_can_be_cut_off(tmp_path: Path) -> None:
    with Appender.open(tmp_path / "log") as log:
        log.append(b"whole\n")
        with file_faults(SeededFaults(seed=3, torn=1.0)), pytest.raises(TornWrite):
            log.append(b"x" * 1000)
        assert 6 <= (tmp_path / "log").stat().st_size < 1006
        log.cut(6)
        log.append(b"next\n")
    assert (tmp_path / "log").read_bytes() == b"whole\nnext\n"


def test_name_of_maximum_length_is_replaced(tmp_path: Path) -> None:
    replace_file(tmp_path / ("x" * 255), b"x")
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == [b"x"]

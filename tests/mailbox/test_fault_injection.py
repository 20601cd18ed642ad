"""Fault rules inject the right number of faults into the right files, messages and processes."""

import errno
import subprocess
import sys
from multiprocessing.dummy import Pool
from pathlib import Path

import pytest

from coterie.files import Appender, TornWrite, replace_file
from coterie.mailbox.fault_injection import (
    FaultRule,
    FaultRules,
    add_fault_rule,
    read_injected_faults,
)
from coterie.mailbox.fault_points import FAULTS_VARIABLE, inject_faults, trigger


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "faults.jsonl"
    monkeypatch.setenv(FAULTS_VARIABLE, str(path))
    return path


def test_rule_tears_one_write_of_the_named_process_and_file(rules: Path, tmp_path: Path) -> None:
    log = tmp_path / "agents/ada/events.jsonl"
    log.parent.mkdir(parents=True)
    with inject_faults("ada"), Appender.open(log) as appender:
        add_fault_rule(rules, FaultRule(id=7, do="torn_write", target="ada", files="ada/*.jsonl", after=1, seed=3))
        appender.append(b"first\n")
        with pytest.raises(TornWrite):
            appender.append(b"second\n")
        appender.append(b"third\n")
    assert log.read_bytes().startswith(b"first\n")
    assert log.read_bytes().endswith(b"third\n")
    assert [(each.id, each.by) for each in read_injected_faults(rules)] == [(7, "ada")]


@pytest.mark.parametrize(
    ("do", "number"), [("disk_full", errno.ENOSPC), ("fsync_fails", errno.EIO), ("rename_fails", errno.EIO)]
)
def test_injected_disk_error_leaves_the_old_file(do: str, number: int, rules: Path, tmp_path: Path) -> None:
    path = tmp_path / "project" / "a"
    path.parent.mkdir()
    path.write_bytes(b"old")
    rules.write_text(f'{{"id":1,"do":"{do}","files":"project/*","times":2}}\n')
    with inject_faults("root"):
        for _ in range(2):
            with pytest.raises(OSError) as caught:  # noqa: PT011 - the number says it
                replace_file(path, b"new")
            assert caught.value.errno == number
        assert path.read_bytes() == b"old"
        replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert len(read_injected_faults(rules)) == 2


def test_same_seed_tears_at_the_same_byte(tmp_path: Path) -> None:
    sizes = set()
    for play in ("one", "two"):
        path = tmp_path / f"{play}.jsonl"
        add_fault_rule(path, FaultRule(id=1, do="torn_write", seed=5))
        sizes.add(FaultRules(path, "ada").before("write", tmp_path / "a", 1000))
    assert len(sizes) == 1
    assert sizes < set(range(1000))


def test_rule_count_holds_for_concurrent_matches(tmp_path: Path) -> None:
    path = tmp_path / "faults.jsonl"
    add_fault_rule(path, FaultRule(id=1, do="drop", transport="file", times=5, after=3))
    with Pool(8) as pool:
        injected = pool.map(lambda _: FaultRules(path, "ada").trigger("drop", "file", "bob"), range(40))
    assert injected.count(0.0) == 5
    assert len(read_injected_faults(path)) == 5


def test_rule_matches_process_file_route_recipient_and_count(rules: Path, tmp_path: Path) -> None:
    add_fault_rule(rules, FaultRule(id=1, do="disk_full", target="bob", times=None))
    add_fault_rule(rules, FaultRule(id=2, do="disk_full", files="other", times=None))
    add_fault_rule(rules, FaultRule(id=3, do="delay", transport="file", target="bob", seconds=1.5))
    with inject_faults("ada"):
        replace_file(tmp_path / "a", b"x")
        assert trigger("delay", "file", "carol") is None
        assert trigger("delay", "queue", "bob") is None
        assert trigger("drop", "file", "bob") is None
        assert trigger("delay", "file", "bob") == 1.5
        assert trigger("delay", "file", "bob") is None
    assert trigger("delay", "file", "bob") is None
    assert [each.id for each in read_injected_faults(rules)] == [3]


@pytest.mark.slow
def test_fault_injection_is_not_imported_without_the_variable() -> None:
    code = f"""
import os, sys
os.environ.pop({FAULTS_VARIABLE!r}, None)
import coterie.mailbox.transports.session_mail
from coterie.mailbox.fault_points import inject_faults
with inject_faults("ada"):
    import coterie.files, coterie.mailbox.fault_points
    assert coterie.files._hook is None and coterie.mailbox.fault_points._hook is None
assert "coterie.mailbox.fault_injection" not in sys.modules
"""
    subprocess.run([sys.executable, "-P", "-c", code], check=True)

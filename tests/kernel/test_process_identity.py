"""Tests of process identities and signals."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import attrs
import pytest
import trio

from coterie.process_identity import (
    ProcessIdentity,
    ancestors,
    list_child_pids,
    list_pids,
    process_start_time,
    process_start_timestamp,
    read_environment,
    read_stat,
    wait_ended,
)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that waits for the end of its input."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, env={"MARK": "a=b"}, start_new_session=True) as process:
        yield process
        process.kill()


def identity(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    began = process_start_time(process.pid)
    assert began is not None
    return ProcessIdentity(pid=process.pid, began=began)


def test_stat_has_parent_group_and_session(child: subprocess.Popen[bytes]) -> None:
    stat = read_stat(child.pid)
    assert stat is not None
    assert not stat.has_ended
    assert (stat.parent, stat.group, stat.session) == (os.getpid(), child.pid, child.pid)
    assert child.pid in list_pids()
    began = process_start_timestamp(child.pid)
    assert began is not None
    assert 0 < began <= time.time() + 1
    assert child.pid in list_child_pids()


def test_unreaped_process_counts_as_ended(child: subprocess.Popen[bytes]) -> None:
    process = identity(child)
    assert process.is_alive()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process_start_time(child.pid) is None
    assert process_start_timestamp(child.pid) is None
    assert not process.is_alive()
    with process.open_handle() as handle:
        assert handle is None
    child.wait()
    assert read_stat(child.pid) is None
    assert read_environment(child.pid) == {}
    assert not process.send_signal(signal.SIGCONT)


def test_process_with_reused_pid_gets_no_signal(child: subprocess.Popen[bytes]) -> None:
    process = identity(child)
    assert not attrs.evolve(process, began=process.began - 1).send_signal(signal.SIGKILL)
    assert process.is_alive()
    assert process.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL


async def test_wait_ended_returns_when_process_ends(child: subprocess.Popen[bytes]) -> None:
    with trio.fail_after(10), identity(child).open_handle() as handle:
        assert handle is not None
        child.kill()
        await handle.wait_ended()
        await wait_ended(child.pid)
        child.wait()
        assert not handle.send_signal(signal.SIGKILL)


def test_environment_is_that_at_start(child: subprocess.Popen[bytes]) -> None:
    while (variables := read_environment(child.pid)) is None:
        pass  # it is about to execute its program
    assert variables == {"MARK": "a=b"}


def test_ancestors_begin_with_the_process_itself(child: subprocess.Popen[bytes]) -> None:
    assert list(ancestors(child.pid))[:3] == [child.pid, os.getpid(), os.getppid()]
    child.kill()
    child.wait()
    with pytest.raises(ProcessLookupError):
        list(ancestors(child.pid))


def test_import_does_not_load_trio() -> None:
    code = "import sys, coterie.process_identity; sys.exit('trio' in sys.modules)"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)

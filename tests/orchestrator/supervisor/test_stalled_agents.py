"""Detection of stalled agents."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import trio
from trio.testing import MockClock

from coterie.orchestrator.supervisor.stall_watch import Activity, wait_for_stall, wakeup_count, written_bytes
from coterie.session_directory import EVENT_LOG, TRANSCRIPT


async def test_unchanged_activity_is_a_stall_unless_the_agent_waits(autojump_clock: MockClock) -> None:
    del autojump_clock
    began = trio.current_time()

    def signs() -> Activity | None:
        past = trio.current_time() - began
        return (min(int(past), 30),)  # it gets on for half a minute

    await wait_for_stall(signs, 60)
    assert 90 <= trio.current_time() - began <= 97
    began = trio.current_time()
    await wait_for_stall(lambda: None if trio.current_time() - began < 1_000 else (), 60)
    assert 1_060 <= trio.current_time() - began <= 1_073


def test_written_bytes_count_as_activity(tmp_path: Path) -> None:
    signs = [written_bytes(tmp_path)]
    for name in (EVENT_LOG, TRANSCRIPT):
        (tmp_path / name).write_text("x\n")
        signs.append(written_bytes(tmp_path))
    assert len(set(signs)) == 3


def test_wakeup_count_grows_only_while_the_process_runs() -> None:
    ours = wakeup_count(os.getpid())
    time.sleep(0.001)  # what is counted: to have waited
    assert wakeup_count(os.getpid()) > ours
    program = "import time\nprint(flush=True)\nwhile True: time.sleep(0.001)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        stopped = wakeup_count(child.pid)
        time.sleep(0.02)
        assert wakeup_count(child.pid) == stopped
        child.kill()
    assert wakeup_count(child.pid) == 0

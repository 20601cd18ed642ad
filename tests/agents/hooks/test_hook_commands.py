"""One run of a hook's command, with misbehaving real commands."""

import os
import shlex
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
import trio

from coterie.agents.hooks.registry import KEPT_CHARACTERS, CommandResult, run_command
from tests.descriptors import count_descriptors

pytestmark = pytest.mark.slow


async def run(command: str, directory: Path, given: bytes = b"{}", limit: float = 20.0) -> CommandResult:
    with trio.fail_after(30):
        return await run_command(command, given, directory, dict(os.environ), limit=limit, grace=0.2)


def is_gone(pid: int) -> bool:
    """True if *pid* has ended, after a short wait for the kernel."""
    ends = time.monotonic() + 10
    while time.monotonic() < ends:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


async def test_command_gets_its_input_and_outputs_are_separate(tmp_path: Path) -> None:
    ran = await run("cat; echo wrong >&2; pwd >&2; exit 3", tmp_path, b'{"a": 1}')
    assert (ran.exit_code, ran.output, ran.failure) == (3, '{"a": 1}', "")
    assert ran.errors == f"wrong\n{tmp_path}\n"


async def test_hanging_command_is_killed_with_its_process_group(tmp_path: Path) -> None:
    ran = await run("trap '' TERM; echo begun; sleep 1000 & echo $! > pid; wait; sleep 1000", tmp_path, limit=1.0)
    assert (ran.exit_code, ran.output) == (None, "begun\n")
    assert ran.failure == "killed after 1 s"
    assert is_gone(int((tmp_path / "pid").read_text()))


async def test_cancellation_leaves_no_process(tmp_path: Path) -> None:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, "sleep 1000 & echo $! > pid.new; mv pid.new pid; wait", tmp_path)
            while not (tmp_path / "pid").exists():  # noqa: ASYNC110 - another process writes it
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert is_gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    "command", ["exec 0<&-; sleep 0.1; echo done", "echo done", "head -c 1 > /dev/null; echo done"]
)
async def test_command_may_ignore_its_input(tmp_path: Path, command: str) -> None:
    ran = await run(command, tmp_path, b"x" * 10_000_000)
    assert (ran.exit_code, ran.output) == (0, "done\n")


async def test_command_gets_all_of_a_large_input(tmp_path: Path) -> None:
    assert (await run("wc -c", tmp_path, b"x" * 10_000_000)).output.strip() == "10000000"


async def test_middle_of_a_long_output_is_discarded(tmp_path: Path) -> None:
    ran = await run("echo begin; head -c 100000000 /dev/zero | tr '\\0' x; echo end", tmp_path)
    assert ran.exit_code == 0
    assert ran.output.startswith("begin\n")
    assert ran.output.endswith("end\n")
    assert len(ran.output) < 2 * KEPT_CHARACTERS + 100


@pytest.mark.parametrize(("command", "code"), [("./no-such-file", 127), ("./plain", 126), ("no_such_program", 127)])
async def test_command_that_cannot_be_executed_has_the_exit_code_of_a_shell(
    tmp_path: Path, command: str, code: int
) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    ran = await run(command, tmp_path)
    assert ran.exit_code == code
    assert command.removeprefix("./") in ran.errors


async def test_missing_directory_is_a_failure_without_an_exception(tmp_path: Path) -> None:
    ran = await run("true", tmp_path / "gone")
    assert ran.exit_code is None
    assert ran.failure.startswith("could not be started: ")


async def test_signal_becomes_the_exit_code_of_a_shell(tmp_path: Path) -> None:
    assert (await run("kill -9 $$", tmp_path)).exit_code == 128 + signal.SIGKILL


async def test_background_processes_of_a_command_are_killed(tmp_path: Path) -> None:
    ran = await run("sleep 1000 & echo $! > pid; echo said", tmp_path)
    assert (ran.exit_code, ran.output) == (0, "said\n")
    assert is_gone(int((tmp_path / "pid").read_text()))


async def test_daemon_with_an_open_pipe_does_not_block(tmp_path: Path) -> None:
    """The daemon has left the process group, so only the test kills it."""
    daemon = (
        "import os, sys, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "open('pid.new', 'w').write(str(os.getpid())); os.rename('pid.new', 'pid')\n"
        "time.sleep(1000)\n"
    )
    (tmp_path / "daemon.py").write_text(daemon)
    python = shlex.quote(sys.executable)
    ran = await run(f"{python} daemon.py; while [ ! -e pid ]; do sleep 0.02; done; echo said", tmp_path)
    pid = int((tmp_path / "pid").read_text())
    try:
        assert (ran.exit_code, ran.output) == (0, "said\n")
        assert psutil.pid_exists(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        assert is_gone(pid)


async def test_no_descriptor_is_left(tmp_path: Path) -> None:
    await run("true", tmp_path)
    before = count_descriptors()
    for command in ("true", "sleep 1000 > /dev/null & exit 2"):
        await run(command, tmp_path)
    await run("true", tmp_path / "gone")
    assert count_descriptors() == before

"""Tests of the Bash tool with real commands."""

import fcntl
import os
import signal
import sys
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.tools.shell.bash import KEPT
from coterie.agents.tools.tool import ToolResult, Workspace
from coterie.agents.tools.worker_process import BoundedOutput
from coterie.agents.tools.workspace.shell_process import PIPE_SIZE, run_shell
from tests.agents.tools.tool_calls import bash, is_running, wait_gone
from tests.descriptors import count_descriptors

pytestmark = pytest.mark.slow


@asynccontextmanager
async def _started(workspace: Workspace, command: str, **fields: Any) -> AsyncIterator[list[int]]:
    """Run *command* until the block ends; the block gets the process ids that it writes to `ready`."""
    ready = workspace.root / "ready"
    os.mkfifo(ready)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(bash, workspace, command, **fields))
        with trio.fail_after(10):
            told = await trio.to_thread.run_sync(ready.read_text, abandon_on_cancel=True)
        yield [int(pid) for pid in told.split()]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("for n in 1 2; do echo out $n; echo err $n >&2; done", ToolResult(text="out 1\nerr 1\nout 2\nerr 2")),
        ("true", ToolResult(text="")),
        ("cat; echo end", ToolResult(text="end")),
        ("yes | head -n 1", ToolResult(text="y")),
        (r"printf 'caf\xe9 \xc3\xa9'", ToolResult(text="caf\ufffd é")),
        ("echo no; exit 3", ToolResult(text="no\n[exit code 3]", is_error=True)),
        ("false", ToolResult(text="[exit code 1]", is_error=True)),
        ("printf x; false", ToolResult(text="x\n[exit code 1]", is_error=True)),
        ("kill -KILL $$", ToolResult(text="[exit code 137]", is_error=True)),
        ("nonexistent-command 2> /dev/null", ToolResult(text="[exit code 127]", is_error=True)),
    ],
)
async def test_result_is_output_in_order_and_exit_code(command: str, result: ToolResult, workspace: Workspace) -> None:
    assert await bash(workspace, command) == result


@pytest.mark.parametrize(
    ("command", "seconds", "words"),
    [
        *(("touch ran", seconds, "over 0 and up to 600") for seconds in (0, -1, 601)),
        *((command, 9, "The command could not be started") for command in ("echo \0", "echo " + "x" * 200_000)),
    ],
)
async def test_invalid_timeout_and_unstartable_command_are_refused(
    command: str, seconds: float, words: str, workspace: Workspace
) -> None:
    descriptors = count_descriptors()
    result = await bash(workspace, command, timeout=seconds)
    assert result.is_error
    assert words in result.text
    assert not (workspace.root / "ran").exists()
    assert count_descriptors() == descriptors


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo $$; trap 'echo bye; exit' TERM; sleep 100 & wait", ["bye"]),
        ("trap '' TERM; echo $$; while :; do sleep 0.01; done", []),
    ],
    ids=["ends when told", "ignores SIGTERM"],
)
async def test_timed_out_command_is_ended_and_its_output_kept(
    command: str, output: list[str], workspace: Workspace
) -> None:
    result = await bash(workspace, command, timeout=1)
    pid, *rest = result.text.split("\n")
    assert (rest, result.is_error) == ([*output, "[timed out after 1 s]"], True)
    assert not psutil.pid_exists(int(pid))


async def test_grandchild_ignoring_sigterm_is_killed_after_shell_ended(workspace: Workspace) -> None:
    """The grandchild has closed the pipe, so only its process group reveals it."""
    stubborn = "trap '' TERM; exec > /dev/null 2>&1; echo $BASHPID > ready; while :; do sleep 0.01; done"
    async with _started(workspace, f"({stubborn}) & wait") as [pid]:
        assert is_running(pid)
    assert not is_running(pid)


async def test_grandchild_gets_grace_after_shell_ended(workspace: Workspace) -> None:
    polite = "trap 'sleep 0.05; echo tidied > done; exit' TERM; echo $BASHPID > ready; while :; do sleep 0.01; done"
    async with _started(workspace, f"({polite}) & wait", grace=5):
        pass
    assert (workspace.root / "done").read_text() == "tidied\n"


async def test_cancellation_kills_whole_group(workspace: Workspace) -> None:
    command = "sleep 100 & (sleep 100 & echo $$ $BASHPID $! > ready; wait) & wait"
    async with _started(workspace, command) as pids:
        assert len(set(pids)) == 3
        assert all(map(is_running, pids))
    assert not any(map(is_running, pids))


async def test_background_process_does_not_delay_call(workspace: Workspace) -> None:
    """The process keeps the pipe open and survives the call."""
    result = await bash(workspace, "sleep 100 & echo $!", timeout=5)
    pid = int(result.text)
    try:
        assert not result.is_error
        assert is_running(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_background_writer_does_not_delay_call(workspace: Workspace) -> None:
    """SIGPIPE ends the process when its pipe is closed."""
    result = await bash(workspace, "yes & echo $! > pid", timeout=5)
    assert not result.is_error
    assert result.text.startswith("y\ny\n")
    await wait_gone(int((workspace.root / "pid").read_text()))


async def test_last_output_is_read_although_drain_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader is delayed until the shell has ended and the pipe holds more than one read returns."""
    monkeypatch.setattr("coterie.agents.tools.workspace.shell_process.DRAIN", 0.0)
    chunks: list[bytes] = []

    def hear_late(chunk: bytes | bytearray) -> None:
        if not chunks:
            os.waitid(os.P_PID, int(bytes(chunk).partition(b"\n")[0]), os.WEXITED | os.WNOWAIT)
        chunks.append(bytes(chunk))

    speech = f"import fcntl, os; fcntl.fcntl(1, {fcntl.F_SETPIPE_SZ}, {PIPE_SIZE}); os.write(1, b'x' * 300_000)"
    with trio.fail_after(10):
        command = f'echo $$; {sys.executable} -P -c "{speech}"'
        await run_shell(command, tmp_path, os.environ, on_output=hear_late, grace=0.1)
    # The first chunk may hold more than the line with the pid.
    assert len(b"".join(chunks).partition(b"\n")[2]) == 300_000


async def test_large_output_is_capped_in_bounded_memory(workspace: Workspace) -> None:
    tracemalloc.start()
    try:
        result = await bash(workspace, "echo begin; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo end")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    total = len("begin\n") + 50_000_000 + len("\nend\n")
    assert peak < 15_000_000
    assert result.text.startswith("begin\nxxx")
    assert result.text.endswith("xxx\nend")
    assert f"\n[... {total - 2 * KEPT:,} characters left out ...]\n" in result.text
    assert len(result.text) < 2 * KEPT + 100


async def test_command_environment_has_no_keys(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "COTERIE_CONTROL_TOKEN"):
        monkeypatch.setenv(name, "secret-value")
    monkeypatch.setenv("HARMLESS", "plain-value")
    result = await bash(workspace, "env; cat /proc/$$/environ | tr '\\0' '\\n'")
    assert "secret-value" not in result.text
    assert "HARMLESS=plain-value" in result.text


@given(text=st.text(max_size=60), half=st.integers(1, 20), size=st.integers(1, 7))
def test_bounded_output_keeps_both_ends_for_any_chunks(text: str, half: int, size: int) -> None:
    capped, content = BoundedOutput(half), text.encode()
    for start in range(0, len(content), size):
        capped.add(content[start : start + size])
    left_out = len(text) - 2 * half
    note = f"\n[... {left_out} characters left out ...]\n"
    assert capped.finish() == (f"{text[:half]}{note}{text[-half:]}" if left_out > 0 else text)

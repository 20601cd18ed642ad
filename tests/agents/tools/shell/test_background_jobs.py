"""Tests of background jobs: start, output, end, and no leftover process."""

import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
import trio.testing

from coterie.agents.tools.shell.bash import Bash, BashOutput, BashOutputInput, KillBash, KillBashInput
from coterie.agents.tools.tool import ToolResult, Workspace
from coterie.agents.tools.workspace.background_jobs import MAX_RUNNING, BackgroundJobs, open_jobs
from coterie.files import file_faults
from tests.agents.tools.tool_calls import bash, call, is_running
from tests.seeded_faults import SeededFaults

pytestmark = pytest.mark.slow


@asynccontextmanager
async def _opened(tmp_path: Path, *, grace: float = 0.1) -> AsyncIterator[Workspace]:
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    root.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    with trio.fail_after(10):
        async with open_jobs(scratch / "jobs", grace=grace) as jobs:
            yield Workspace(root=root, scratch=scratch, jobs=jobs)


def _jobs(workspace: Workspace) -> BackgroundJobs:
    assert workspace.jobs is not None
    return workspace.jobs


_start = partial(bash, run_in_background=True)


async def _output(workspace: Workspace, name: str = "bash_1", **value: Any) -> ToolResult:
    return await call(BashOutput(filter_limit=0.3), workspace, bash_id=name, **value)


async def _kill(workspace: Workspace, name: str = "bash_1") -> ToolResult:
    return await call(KillBash(), workspace, bash_id=name)


def _fifo(workspace: Workspace, name: str) -> Path:
    path = workspace.root / name
    os.mkfifo(path)
    return path


async def _read_fifo(fifo: Path) -> str:
    """Return the line that a job writes to the fifo."""
    return await trio.to_thread.run_sync(fifo.read_text, abandon_on_cancel=True)


async def _end_of(workspace: Workspace, name: str = "bash_1") -> None:
    await _jobs(workspace).by_id[name].wait_ended()


async def _run(workspace: Workspace, command: str) -> None:
    assert not (await _start(workspace, command)).is_error
    await _end_of(workspace)


async def _continue(workspace: Workspace, fifo: Path) -> None:
    """Write the line that job bash_1 reads from the fifo, and wait until the job ends."""
    await trio.to_thread.run_sync(fifo.write_text, "go\n", abandon_on_cancel=True)
    await _end_of(workspace)


async def test_job_starts_in_shell_directory_without_keys_and_does_not_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret-value")
    async with _opened(tmp_path) as workspace:
        (workspace.root / "sub" / "deep").mkdir(parents=True)
        await call(Bash(), workspace, command="cd sub")
        result = await _start(workspace, "pwd; env; cd deep")
        path = workspace.scratch / "jobs" / "bash_1.out"
        assert result == ToolResult(
            text=f"Started job bash_1. BashOutput shows its output, KillBash ends it. Output file: {path}"
        )
        await _end_of(workspace)
        shown = (await _output(workspace)).text
        assert shown.startswith(f"{workspace.root / 'sub'}\n")
        assert "secret-value" not in shown
        assert workspace.shell.directory == workspace.root / "sub"


async def test_new_output_is_shown_once_with_status_last(tmp_path: Path) -> None:
    """A partial character is shown when it is complete, and a cancelled call ends no job."""
    async with _opened(tmp_path) as workspace:
        said, go = _fifo(workspace, "said"), _fifo(workspace, "go")
        await _start(workspace, r"printf 'one\ncaf\xc3'; echo 1 > said; read < go; printf '\xa9'; echo two >&2; exit 3")
        await _read_fifo(said)
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await _output(workspace)
        assert (await _output(workspace)).text == "one\ncaf\n[bash_1: running]"
        assert (await _output(workspace)).text == "[bash_1: running]"
        await _continue(workspace, go)
        assert await _output(workspace) == ToolResult(text="étwo\n[bash_1: ended with exit code 3]")
        assert (await _output(workspace)).text == "[bash_1: ended with exit code 3]"


async def test_filter_shows_only_matching_lines_and_loses_nothing_if_it_fails(tmp_path: Path) -> None:
    async with _opened(tmp_path) as workspace:
        await _run(workspace, rf"printf 'error: 1\nfine\r\n\xff error: 2\n{'a' * 80}b\nlast error'")
        for failing, words in (("(", "no valid regular expression"), ("a" * 40 + "(a+)+$", "stopped after")):
            refused = await _output(workspace, filter=failing)
            assert (refused.is_error, words in refused.text) == (True, True)
        result = await _output(workspace, filter=r"error(: \d)?$")
        assert result.text == "error: 1\n\ufffd error: 2\nlast error\n[bash_1: ended with exit code 0]"
        assert (await _output(workspace)).text == "[bash_1: ended with exit code 0]"


async def test_output_is_kept_up_to_limit_with_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.agents.tools.workspace.background_jobs.MAX_OUTPUT", 2 * 1024 * 1024)
    async with _opened(tmp_path) as workspace:
        await _run(workspace, "head -c 3000000 /dev/zero | tr '\\0' x; echo end > done")
        assert (workspace.root / "done").exists()
        assert (workspace.scratch / "jobs" / "bash_1.out").stat().st_size == 2 * 1024 * 1024
        result = await _output(workspace)
        assert result.text.endswith("xxx\n[later output was not kept: over 2 MB]\n[bash_1: ended with exit code 0]")


async def test_full_disk_loses_output_but_not_the_job(tmp_path: Path) -> None:
    async with _opened(tmp_path) as workspace:
        with file_faults(SeededFaults(seed=1, full=1.0)):
            await _run(workspace, "echo lost")
        result = await _output(workspace)
        assert result.text == ("[later output was not kept: No space left on device]\n[bash_1: ended with exit code 0]")


async def test_killed_job_and_its_children_have_ended(tmp_path: Path) -> None:
    async with _opened(tmp_path) as workspace:
        ready = _fifo(workspace, "ready")
        stubborn = "(trap '' TERM; echo $$ $BASHPID > ready; while :; do sleep 0.01; done) & wait"
        await _start(workspace, f"echo before; {stubborn}")
        pids = [int(pid) for pid in (await _read_fifo(ready)).split()]
        assert all(map(is_running, pids))
        assert await _kill(workspace) == ToolResult(text="bash_1: killed")
        assert not any(map(is_running, pids))
        assert (await _output(workspace)).text == "before\n[bash_1: killed]"
        assert (await _kill(workspace)).text == "bash_1: already killed"
        assert _jobs(workspace).take_finished() == []


@pytest.mark.parametrize("is_failing", [False, True])
async def test_all_jobs_end_with_the_block(tmp_path: Path, *, is_failing: bool) -> None:
    """Also if the block fails; a job gets SIGTERM and time to clean up."""
    pids: list[int] = []
    failure = pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True) if is_failing else contextlib.nullcontext()
    with failure:
        async with _opened(tmp_path, grace=1.0) as workspace:
            ready = _fifo(workspace, "ready")
            for command in (
                "trap 'echo tidied > done; exit' TERM; sleep 100 & echo $$ $! > ready; wait",
                "trap '' TERM; echo $$ > ready; while :; do sleep 0.01; done",
            ):
                await _start(workspace, command)
                pids += map(int, (await _read_fifo(ready)).split())
            assert all(map(is_running, pids))
            if is_failing:
                raise ZeroDivisionError
    assert len(pids) == 3
    assert not any(map(psutil.pid_exists, pids[::2]))
    assert not any(map(is_running, pids))
    assert (workspace.root / "done").read_text() == "tidied\n"
    with pytest.raises(trio.ClosedResourceError):
        await _jobs(workspace).start("true", workspace.root, {})


async def test_background_processes_of_job_end_with_it(tmp_path: Path) -> None:
    async with _opened(tmp_path) as workspace:
        await _run(workspace, "sleep 100 & echo $!")
        pid, status = (await _output(workspace)).text.split("\n")
        assert status == "[bash_1: ended with exit code 0]"
        assert not is_running(int(pid))


async def test_end_of_job_is_notified_once_unless_it_was_shown(tmp_path: Path) -> None:
    async with _opened(tmp_path) as workspace:
        go = _fifo(workspace, "go")
        await _start(workspace, "read < go\nexit 3")
        await _start(workspace, f"true {'x' * 200}")
        await _end_of(workspace, "bash_2")
        told = f"Background job bash_2 ended with exit code 0: true {'x' * 71} ..."
        assert _jobs(workspace).take_finished() == [told]
        await _continue(workspace, go)
        assert _jobs(workspace).take_finished() == ["Background job bash_1 ended with exit code 3: read < go exit 3"]
        await _start(workspace, "exit 4")
        await _end_of(workspace, "bash_3")
        assert (await _kill(workspace, "bash_3")).text == "bash_3: already ended with exit code 4"
        assert _jobs(workspace).take_finished() == []


async def test_number_of_running_jobs_is_limited(tmp_path: Path) -> None:
    async with _opened(tmp_path) as workspace:
        for _ in range(MAX_RUNNING):
            assert not (await _start(workspace, "exec sleep 100")).is_error
        refused = await _start(workspace, "exec sleep 100")
        assert refused.is_error
        assert "10 background jobs are running" in refused.text
        await _kill(workspace, "bash_4")
        assert (await _start(workspace, "true")).text.startswith("Started job bash_11.")


async def test_unstartable_job_is_refused_and_not_listed(tmp_path: Path) -> None:
    """The first job gets no output file, and the second one no process."""
    async with _opened(tmp_path) as workspace:
        (workspace.scratch / "jobs").touch()
        fileless = await _start(workspace, "touch ran")
        (workspace.scratch / "jobs").unlink()
        for refused in (fileless, await _start(workspace, "echo \0")):
            assert refused.is_error
            assert "could not be started" in refused.text
        assert (await _output(workspace)).text == "There is no job 'bash_1' in this run; there is none"
        assert _jobs(workspace).take_finished() == []
        assert not (workspace.root / "ran").exists()


async def test_jobs_of_later_run_get_new_ids(tmp_path: Path) -> None:
    async with _opened(tmp_path) as workspace:
        await _run(workspace, "echo first")
    async with _opened(tmp_path) as workspace:
        assert (await _start(workspace, "echo second")).text.startswith("Started job bash_2.")
        await _end_of(workspace, "bash_2")
        assert (workspace.scratch / "jobs" / "bash_1.out").read_text() == "first\n"
        for answer in (await _output(workspace, "bash2"), await _kill(workspace, "bash2")):
            assert answer == ToolResult(text="There is no job 'bash2' in this run; did you mean bash_2?", is_error=True)


async def test_job_tools_affect_no_path_and_are_refused_without_jobs(workspace: Workspace) -> None:
    started, shown, killed = await _start(workspace, "true"), await _output(workspace), await _kill(workspace)
    assert started.is_error
    assert "without run_in_background" in started.text
    assert (shown.is_error, shown) == (True, killed)
    assert "cannot have background jobs" in shown.text
    assert BashOutput().paths_affected(BashOutputInput(bash_id="bash_1"), workspace) == ()
    assert KillBash().paths_affected(KillBashInput(bash_id="bash_1"), workspace) == ()

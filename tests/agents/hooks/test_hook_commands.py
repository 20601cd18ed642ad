"""One run of a hook's command, with misbehaving real commands."""

import os
import signal
from pathlib import Path

import pytest
import trio

from coterie.agents.hooks.registry import CommandResult, run_command
from tests.agents.tools.tool_calls import wait_gone
from tests.descriptors import count_descriptors

pytestmark = pytest.mark.slow


async def run(command: str, directory: Path, given: bytes = b"{}", limit: float = 20.0) -> CommandResult:
    with trio.fail_after(30):
        return await run_command(command, given, directory, dict(os.environ), limit=limit, grace=0.2)


async def test_command_gets_its_input_and_outputs_are_separate(tmp_path: Path) -> None:
    ran = await run("cat; echo wrong >&2; pwd >&2; exit 3", tmp_path, b'{"a": 1}')
    assert (ran.exit_code, ran.output, ran.failure) == (3, '{"a": 1}', "")
    assert ran.errors == f"wrong\n{tmp_path}\n"
    assert (await run("kill -9 $$", tmp_path)).exit_code == 128 + signal.SIGKILL


async def test_hanging_command_is_killed_with_its_process_group(tmp_path: Path) -> None:
    ran = await run("trap '' TERM; echo begun; sleep 1000 & echo $! > pid; wait; sleep 1000", tmp_path, limit=1.0)
    assert (ran.exit_code, ran.output) == (None, "begun\n")
    assert ran.failure == "killed after 1 s"
    await wait_gone(int((tmp_path / "pid").read_text()))


async def test_cancellation_leaves_no_process(tmp_path: Path) -> None:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, "sleep 1000 & echo $! > pid.new; mv pid.new pid; wait", tmp_path)
            while not (tmp_path / "pid").exists():  # noqa: ASYNC110 - another process writes it
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    await wait_gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("exec 0<&-; sleep 0.1; echo done", "done"),
        ("echo done", "done"),
        ("head -c 1 > /dev/null; echo done", "done"),
        ("wc -c", "10000000"),
    ],
)
async def test_command_gets_all_of_a_large_input_or_ignores_it(tmp_path: Path, command: str, output: str) -> None:
    ran = await run(command, tmp_path, b"x" * 10_000_000)
    assert (ran.exit_code, ran.output.strip()) == (0, output)


async def test_background_processes_are_killed_and_no_descriptor_is_left(tmp_path: Path) -> None:
    await run("true", tmp_path)
    before = count_descriptors()
    ran = await run("sleep 1000 & echo $! > pid; echo said", tmp_path)
    assert (ran.exit_code, ran.output) == (0, "said\n")
    await wait_gone(int((tmp_path / "pid").read_text()))
    await run("sleep 1000 > /dev/null & exit 2", tmp_path)
    unstartable = await run("true", tmp_path / "gone")
    assert unstartable.exit_code is None
    assert unstartable.failure.startswith("could not be started: ")
    assert count_descriptors() == before

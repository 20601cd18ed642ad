"""Process of a hook's command, owned from start to exit."""

import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from coterie.agents.tools.worker_process import BoundedOutput
from coterie.agents.tools.workspace.shell_process import SHELL, open_output_reader, wait_or_kill

KEPT_CHARACTERS = 500_000
"""Number of characters kept from the beginning of an output, and again from its end."""
GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL."""


@attrs.frozen(kw_only=True)
class CommandResult:
    """Result of a command."""

    exit_code: int | None
    """None if the command could not be started, or was killed because of its timeout."""
    output: str = ""
    errors: str = ""
    seconds: float
    failure: str = ""
    """Reason why there is no exit code."""


async def run_command(
    command: str, given: bytes, directory: Path, environment: Mapping[str, str], *, limit: float, grace: float = GRACE
) -> CommandResult:
    """Run *command* in a shell with *given* on its standard input, for at most *limit* seconds.

    The command may ignore its input. After its exit, after the timeout and after a cancellation, the whole process
    group is killed; processes that have left the group are waited for only briefly. Never returns before the shell is
    reaped. A command that fails, or that cannot be started, does not raise.
    """
    began = trio.current_time()
    output, errors = BoundedOutput(KEPT_CHARACTERS), BoundedOutput(KEPT_CHARACTERS)
    try:
        process, streams = _start(command, directory, environment)
    except (OSError, ValueError) as exc:
        return CommandResult(exit_code=None, seconds=0.0, failure=f"could not be started: {exc}")
    try:
        async with (
            streams[0],
            streams[1],
            streams[2],
            open_output_reader(streams[1], output.add),
            open_output_reader(streams[2], errors.add),
            _open_feed(streams[0], given),
        ):
            with trio.move_on_after(limit) as scope:
                await wait_or_kill(process.pid, grace, ends_group=True)
    finally:
        # Reaped only now: until then the kernel cannot reuse the id of the process group.
        process.poll()
    is_late = scope.cancelled_caught
    return CommandResult(
        exit_code=None if is_late else process.returncode if process.returncode >= 0 else 128 - process.returncode,
        output=output.finish(),
        errors=errors.finish(),
        seconds=trio.current_time() - began,
        failure=f"killed after {limit:g} s" if is_late else "",
    )


def _start(
    command: str, directory: Path, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], list[trio.lowlevel.FdStream]]:
    """Start the shell and return its process and our ends of its three streams.

    Runs in the calling thread, because children with a parent-death signal die with the thread that started them.
    """
    pipes = [os.pipe() for _ in range(3)]
    child_ends, own_ends = [pipes[0][0], pipes[1][1], pipes[2][1]], [pipes[0][1], pipes[1][0], pipes[2][0]]
    try:
        process = subprocess.Popen(  # noqa: S603 - the purpose is to run commands that the user has approved
            [SHELL, "-c", command],
            cwd=directory,
            env=environment,
            stdin=child_ends[0],
            stdout=child_ends[1],
            stderr=child_ends[2],
            start_new_session=True,
        )
    except (OSError, ValueError):
        for descriptor in own_ends:
            os.close(descriptor)
        raise
    finally:
        for descriptor in child_ends:
            os.close(descriptor)
    return process, [trio.lowlevel.FdStream(descriptor) for descriptor in own_ends]


@asynccontextmanager
async def _open_feed(stream: trio.lowlevel.FdStream, given: bytes) -> AsyncIterator[None]:
    """Write *given* into the pipe while the block runs, then close the pipe."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_feed, stream, given)
        yield
        # A command that exits without reading all of its input does not need the rest.
        nursery.cancel_scope.cancel()


async def _feed(stream: trio.lowlevel.FdStream, given: bytes) -> None:
    async with stream:
        try:
            await stream.send_all(given)
        except trio.BrokenResourceError:
            return  # The command has closed its standard input.

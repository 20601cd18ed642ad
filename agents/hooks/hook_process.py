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

KEPT = 500_000
"""Characters of an output that are kept at its beginning, and again at its end."""
GRACE = 1.0
"""Seconds between asking a command to end and killing it."""


@attrs.frozen(kw_only=True)
class CommandResult:
    """What came of a command."""

    exit_code: int | None
    """None if it could not be started, or was ended because its time was up."""
    output: str = ""
    errors: str = ""
    seconds: float
    failure: str = ""
    """Why there is no exit code."""


async def run_command(
    command: str, given: bytes, directory: Path, environment: Mapping[str, str], *, limit: float, grace: float = GRACE
) -> CommandResult:
    """Run *command* in a shell, with *given* on its standard input, for *limit* seconds at most.

    It need not read what it is given. When it has ended, when its time is up and when this is cancelled, its whole
    group is ended; what has left the group is waited for no longer than a moment. Never returns before the shell is
    reaped. Does not raise for what the command does, nor where it cannot be started.
    """
    began = trio.current_time()
    output, errors = BoundedOutput(KEPT), BoundedOutput(KEPT)
    try:
        process, streams = _start(command, directory, environment)
    except (OSError, ValueError) as exc:
        return CommandResult(exit_code=None, seconds=0.0, failure=f"it could not be started: {exc}")
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
        # Reaped only now: until then the number of the group cannot go to a stranger.
        process.poll()
    is_late = scope.cancelled_caught
    return CommandResult(
        exit_code=None if is_late else process.returncode if process.returncode >= 0 else 128 - process.returncode,
        output=output.finish(),
        errors=errors.finish(),
        seconds=trio.current_time() - began,
        failure=f"it took longer than {limit:g} s and was killed" if is_late else "",
    )


def _start(
    command: str, directory: Path, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], list[trio.lowlevel.FdStream]]:
    """The shell, and our ends of its three streams. Inline: what dies with its parent dies with the parent's thread."""
    pipes = [os.pipe() for _ in range(3)]
    theirs, ours = [pipes[0][0], pipes[1][1], pipes[2][1]], [pipes[0][1], pipes[1][0], pipes[2][0]]
    try:
        process = subprocess.Popen(  # noqa: S603 - running what the user has approved is the purpose
            [SHELL, "-c", command],
            cwd=directory,
            env=environment,
            stdin=theirs[0],
            stdout=theirs[1],
            stderr=theirs[2],
            start_new_session=True,
        )
    except (OSError, ValueError):
        for descriptor in ours:
            os.close(descriptor)
        raise
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    return process, [trio.lowlevel.FdStream(descriptor) for descriptor in ours]


@asynccontextmanager
async def _open_feed(stream: trio.lowlevel.FdStream, given: bytes) -> AsyncIterator[None]:
    """Write *given* into the pipe while the block runs, and close it behind."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_feed, stream, given)
        yield
        # Who has ended without reading all of it did not want it.
        nursery.cancel_scope.cancel()


async def _feed(stream: trio.lowlevel.FdStream, given: bytes) -> None:
    async with stream:
        try:
            await stream.send_all(given)
        except trio.BrokenResourceError:
            return  # it has closed its standard input: it wants no more

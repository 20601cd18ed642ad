"""Process of a hook's command, owned from start to exit."""

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from coterie.agents.tools.worker_process import BoundedOutput
from coterie.agents.tools.workspace.shell_process import SHELL, open_output_reader, start_process, wait_or_kill

KEPT_CHARACTERS = 500_000
"""Number of characters kept from the beginning of an output, and again from its end."""


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
    command: str, given: bytes, directory: Path, environment: Mapping[str, str], *, limit: float, grace: float = 1.0
) -> CommandResult:
    """Run *command* in a shell with *given* on its standard input, for at most *limit* seconds.

    The command may ignore its input. After its exit, after the timeout and after a cancellation, the whole process
    group gets SIGTERM, and SIGKILL *grace* seconds later; processes that have left the group are waited for only
    briefly. Never returns before the shell is reaped. A command that fails, or that cannot be started, does not raise.
    """
    began = trio.current_time()
    output, errors = BoundedOutput(KEPT_CHARACTERS), BoundedOutput(KEPT_CHARACTERS)
    (stdin, feed), (output_end, stdout), (errors_end, stderr) = (os.pipe() for _ in range(3))
    own_ends = (feed, output_end, errors_end)
    try:
        process = start_process([SHELL, "-c", command], directory, environment, (stdin, stdout, stderr), own_ends)
    except (OSError, ValueError) as exc:
        return CommandResult(exit_code=None, seconds=0.0, failure=f"could not be started: {exc}")
    try:
        async with (
            trio.lowlevel.FdStream(feed) as given_stream,
            trio.lowlevel.FdStream(output_end) as output_stream,
            trio.lowlevel.FdStream(errors_end) as errors_stream,
            open_output_reader(output_stream, output.add),
            open_output_reader(errors_stream, errors.add),
            _open_feed(given_stream, given),
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


@asynccontextmanager
async def _open_feed(stream: trio.lowlevel.FdStream, given: bytes) -> AsyncIterator[None]:
    """Write *given* into the pipe while the block runs, then close the pipe."""

    async def feed() -> None:
        with contextlib.suppress(trio.BrokenResourceError):  # The command has closed its standard input.
            async with stream:
                await stream.send_all(given)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        yield
        # A command that exits without reading all of its input does not need the rest.
        nursery.cancel_scope.cancel()

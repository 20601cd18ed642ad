"""Shell commands: start of a shell in a new process group, reading of its output, and killing of the whole group."""

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.sandbox.sandbox import Sandbox
from coterie.process_identity import ProcessIdentity, list_pids, read_stat, wait_ended

SHELL = "/bin/bash"
DRAIN = 0.2
"""Seconds to read output after the shell has ended, if a background process still has the pipe open."""
KILLED_WITHIN = 5.0
"""Maximum seconds to wait for the end of processes after SIGKILL; only hanging disk or network I/O takes longer."""
POLL = 0.01
PIPE_SIZE = 1024 * 1024
"""Bytes of output to read in one step after the shell has ended: by default no pipe can contain more."""


async def run_shell(
    command: str,
    directory: Path,
    environment: Mapping[str, str],
    *,
    on_output: Callable[[bytes | bytearray], None],
    grace: float,
    on_start: Callable[[], None] = lambda: None,
    ends_group: bool = False,
    sandbox: Sandbox | None = None,
) -> int:
    """Run *command* in bash and return its exit code; for a command killed by a signal, 128 plus the signal number.

    *on_output* gets the output as it arrives, even during termination; *on_start* is called once the command runs.
    Background processes survive the shell, unless *ends_group* is set or the *sandbox* kills them. Cancellation sends
    SIGTERM to the process group, waits *grace* seconds, and sends SIGKILL. Returns only after the shell is reaped,
    unless it cannot be killed. Raises `ToolFailed` if the command cannot be started.
    """
    program = [SHELL, "-c", command]
    try:
        if sandbox is not None:
            program, environment = sandbox.command(program, directory), sandbox.environment(environment)
        read_end, write_end = os.pipe()
        process = start_process(program, directory, environment, (subprocess.DEVNULL, write_end, write_end), [read_end])
    except (OSError, ValueError) as exc:
        raise ToolFailed(f"The command could not be started: {exc}. Correct the command, or tell the user.") from exc
    has_init = sandbox is not None and sandbox.has_init_process
    on_start()
    try:
        async with trio.lowlevel.FdStream(read_end) as stream, open_output_reader(stream, on_output):
            await wait_or_kill(process.pid, grace, ends_group=ends_group, has_init=has_init)
    finally:
        # Reap the shell only now: until then its group id cannot be reused.
        process.poll()
        if sandbox is not None:
            sandbox.remove_unwanted()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def start_process(
    program: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    streams: tuple[int, int, int],
    own_ends: Iterable[int],
) -> subprocess.Popen[bytes]:
    """Start *program* in a new session and process group, with the descriptors *streams* as stdin, stdout and stderr.

    Then closes *streams* in this process. If the start fails, closes *own_ends* (the other ends of the pipes) too, and
    raises `OSError` or `ValueError`. Must not run in a thread: the Bubblewrap sandbox dies with the starting thread.
    """
    try:
        return subprocess.Popen(  # noqa: S603 - the model's commands have permission, and the user has approved hooks
            program,
            cwd=directory,
            env=environment,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            start_new_session=True,
        )
    except (OSError, ValueError):
        for descriptor in own_ends:
            os.close(descriptor)
        raise
    finally:
        for descriptor in {*streams} - {subprocess.DEVNULL}:
            os.close(descriptor)


@asynccontextmanager
async def open_output_reader(
    stream: trio.lowlevel.FdStream, on_output: Callable[[bytes | bytearray], None]
) -> AsyncIterator[None]:
    """Pass the output in the pipe *stream* to *on_output* during the block, and up to DRAIN seconds after its end.

    Continues after cancellation, so that a process that is being terminated does not block on a full pipe.
    """
    reading = trio.CancelScope(shield=True)

    async def pump() -> None:
        with reading:
            async for chunk in stream:
                on_output(chunk)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump)
        try:
            yield
        finally:
            reading.deadline = trio.current_time() + DRAIN
    # On a busy machine the deadline may pass before the pipe is empty; the rest is the last output of the shell.
    with contextlib.suppress(BlockingIOError):
        on_output(os.read(stream.fileno(), PIPE_SIZE))


async def wait_or_kill(pid: int, grace: float, *, ends_group: bool, has_init: bool = False) -> None:
    """Wait until the shell *pid* has ended; on cancellation, or always with *ends_group*, kill its process group."""
    has_ended = False
    try:
        await wait_ended(pid)
        has_ended = True
    finally:
        if ends_group or not has_ended:
            with trio.CancelScope(shield=True):
                await _kill_group(pid, grace, has_init=has_init)


async def _kill_group(group: int, grace: float, *, has_init: bool) -> None:
    """Send SIGTERM to the process group *group*, and SIGKILL *grace* seconds later; return when all have ended.

    Gives up KILLED_WITHIN seconds after SIGKILL. With *has_init*, the leader of the group is the init process of a
    sandbox. It gets no SIGTERM, because its end kills the others immediately, so that they could not clean up.
    """
    for number, timeout in ((signal.SIGTERM, grace), (signal.SIGKILL, KILLED_WITHIN)):
        if has_init and number == signal.SIGTERM:
            await trio.to_thread.run_sync(_terminate_members_sync, group)
        else:
            with contextlib.suppress(PermissionError):  # all remaining processes run as another user
                os.killpg(group, number)
        with trio.move_on_after(timeout):
            # The shell may have ended before its children.
            while await trio.to_thread.run_sync(list, _members(group)):  # noqa: ASYNC110 - the end of a group has no event
                await trio.sleep(POLL)
            return


def _terminate_members_sync(group: int) -> None:
    """Send SIGTERM to every process of the process group *group*, except the leader, which has the pid *group*."""
    for process in _members(group):
        if process.pid != group:
            with contextlib.suppress(PermissionError):
                process.send_signal(signal.SIGTERM)


def _members(group: int) -> Iterator[ProcessIdentity]:
    for pid in list_pids():
        stat = read_stat(pid)
        if stat is not None and stat.group == group and not stat.has_ended:
            yield ProcessIdentity(pid=pid, began=stat.began)

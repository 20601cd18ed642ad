"""Shell process and its group, owned from start to exit."""

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.sandbox.sandbox import Sandbox
from coterie.process_identity import ProcessIdentity, list_pids, read_stat, wait_ended

SHELL = "/bin/bash"
DRAIN = 0.2
"""Seconds in which a background process that has the pipe open may still be heard after the shell has ended."""
KILLED_WITHIN = 5.0
"""Seconds after SIGKILL in which the kernel ends a process, unless a disk or a network holds it."""
POLL = 0.01
PIPE_SIZE = 1024 * 1024
"""Bytes a pipe holds at most, unless the system's limit was raised."""


async def run_shell(
    command: str,
    directory: Path,
    environment: Mapping[str, str],
    *,
    heard: Callable[[bytes | bytearray], None],
    grace: float,
    begun: Callable[[], None] = lambda: None,
    ends_group: bool = False,
    sandbox: Sandbox | None = None,
) -> int:
    """Run *command* and return its exit code; for one ended by a signal, 128 and the signal's number.

    *heard* gets what the command prints, in order and as it comes, also while it is being ended; *begun* is called
    once it runs. Processes in the background live on, unless *ends_group* says that they end with the shell, or a
    *sandbox* that it runs in does. When cancelled, asks the whole group to end, waits *grace* seconds, then kills it.
    Never returns before the shell is reaped, unless it cannot be killed. Raises `ToolFailed` if it cannot be started.
    """
    process, descriptor = _start(command, directory, environment, sandbox)
    has_keeper = sandbox is not None and sandbox.has_init_process
    begun()
    try:
        async with trio.lowlevel.FdStream(descriptor) as stream, open_output_reader(stream, heard):
            await wait_or_kill(process.pid, grace, ends_group=ends_group, has_keeper=has_keeper)
    finally:
        # Reaped only now: until then the number of the group cannot go to a stranger.
        process.poll()
        if sandbox is not None:
            sandbox.remove_unwanted()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _start(
    command: str, directory: Path, environment: Mapping[str, str], sandbox: Sandbox | None
) -> tuple[subprocess.Popen[bytes], int]:
    """The shell and our end of its output. Inline, not in a thread: what dies with its parent dies with that thread."""
    program = [SHELL, "-c", command]
    ours, theirs = os.pipe()
    try:
        process = subprocess.Popen(  # noqa: S603 - running what the model asks for is the purpose; permissions come before
            program if sandbox is None else sandbox.command(program, directory),
            cwd=directory,
            env=environment if sandbox is None else sandbox.environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
    except (OSError, ValueError) as exc:
        os.close(ours)
        raise ToolFailed(f"The command could not be started: {exc}") from exc
    finally:
        os.close(theirs)
    return process, ours


@asynccontextmanager
async def open_output_reader(
    stream: trio.lowlevel.FdStream, heard: Callable[[bytes | bytearray], None]
) -> AsyncIterator[None]:
    """Pass on what comes through the pipe until the block has ended and the pipe is closed, or DRAIN is over.

    Goes on in a cancelled block: a process that is asked to end must not choke on a pipe that nobody empties.
    """
    listening = trio.CancelScope(shield=True)

    async def pump() -> None:
        with listening:
            async for chunk in stream:
                heard(chunk)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump)
        try:
            yield
        finally:
            listening.deadline = trio.current_time() + DRAIN
    # On a busy machine the time may be up before the pipe is empty, and the shell's last words are in it.
    with contextlib.suppress(BlockingIOError):
        heard(os.read(stream.fileno(), PIPE_SIZE))


async def wait_or_kill(pid: int, grace: float, *, ends_group: bool, has_keeper: bool = False) -> None:
    """Return when the shell has ended; when cancelled, or with *ends_group*, end its whole group too."""
    has_ended = False
    try:
        await wait_ended(pid)
        has_ended = True
    finally:
        if ends_group or not has_ended:
            with trio.CancelScope(shield=True):
                await _kill_group(pid, grace, has_keeper=has_keeper)


async def _kill_group(group: int, grace: float, *, has_keeper: bool) -> None:
    """Ask, wait, kill; returns when every process of the group has ended, or cannot be.

    A keeper, which leads the group, is not asked: it would end the others at once, and they could not tidy up.
    """
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, KILLED_WITHIN)):
        if has_keeper and number == signal.SIGTERM:
            await trio.to_thread.run_sync(_ask_members_sync, group)
        else:
            with contextlib.suppress(PermissionError):  # all that is left runs as another user
                os.killpg(group, number)
        with trio.move_on_after(patience):
            while await trio.to_thread.run_sync(_is_alive_sync, group):  # noqa: ASYNC110 - no event tells of a group
                await trio.sleep(POLL)
            return


def _is_alive_sync(group: int) -> bool:
    """Whether a process of the group still runs. The shell may have gone before its children, so it is no sign."""
    return any(True for _ in _members(group))


def _ask_members_sync(group: int) -> None:
    """Ask every process of the group to end but the one that leads it."""
    for process in _members(group):
        if process.pid != group:
            with contextlib.suppress(PermissionError):
                process.send_signal(signal.SIGTERM)


def _members(group: int) -> Iterator[ProcessIdentity]:
    for pid in list_pids():
        stat = read_stat(pid)
        if stat is not None and stat.group == group and not stat.has_ended:
            yield ProcessIdentity(pid=pid, began=stat.began)

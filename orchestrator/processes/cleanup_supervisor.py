"""Supervisor of the cleanup daemon: starts it, replaces it when it dies, and releases it."""

import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from coterie.orchestrator.processes import cleanup_daemon
from coterie.orchestrator.processes.child_process import ChildProcess
from coterie.orchestrator.processes.process_start import StartFailed, translate_start_errors

MAX_RESTARTS = 20
"""Times. Who kills that many means it, or none can live here."""
CONTINUE_SECONDS = 1.0
"""Seconds between two looks after a janitor that may have been stopped."""
EXIT_TIMEOUT = 2.0
"""Seconds in which a janitor that was told farewell ends."""


@attrs.define(eq=False)
class CleanupSupervisor:
    """The janitor of a session, whichever process it is. Made by `open_cleanup_daemon`."""

    _arguments: tuple[str, str]
    _environment: Mapping[str, str]
    _child: ChildProcess | None = None
    _pipe: int | None = None
    """Our end of its pipe. Nobody else gets it: it is closed in whatever is executed."""

    @property
    def pid(self) -> int | None:
        """The process; None while there is none."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        """Start a janitor. It need not be ready: what it waits for waits for it. Raises `StartFailed`."""
        with translate_start_errors():
            theirs, ours = os.pipe()
            try:
                self._child = self._spawn(theirs)
            except OSError:
                os.close(ours)
                raise
            finally:
                os.close(theirs)
            self._pipe = ours

    def _spawn(self, line: int) -> ChildProcess:
        # In a group of its own no terminal reaches it. It stays in our terminal session, for then the kernel continues
        # it, if it is stopped, at our death. Without `site`, and by its path, it is there in no time.
        with os.fdopen(os.pidfd_open(os.getpid()), "rb", buffering=0) as ourselves:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", cleanup_daemon.__file__, *self._arguments],
                self._environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, line, 0),
                    (os.POSIX_SPAWN_DUP2, ourselves.fileno(), cleanup_daemon.ROOT_DESCRIPTOR),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                ],
                setpgroup=0,
                setsigmask=cleanup_daemon.IGNORED_SIGNALS,
            )
        try:
            return ChildProcess.of(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)  # before it can take the end of its pipe for ours
            os.waitpid(pid, 0)
            raise

    async def supervise(self, fail: Callable[[str], None]) -> None:
        """Replace who falls and continue who is stopped, until cancelled; *fail* hears of each fall.

        Returns when none can be started, or too many have fallen: the session goes on without.
        """
        for _ in range(MAX_RESTARTS):
            status = await self._wait_died()
            fail(f"the janitor ended with status {status}, and is replaced")
            try:
                self.start()
            except StartFailed as exc:
                fail(f"there is no janitor any more: {exc}")
                return
        fail(f"there is no janitor any more: {MAX_RESTARTS} were replaced, and status {await self._wait_died()}")

    async def _wait_died(self) -> int:
        """The status of a janitor that has ended before its time."""
        assert self._child is not None
        while self._child.status is None:
            self._child.send_signal(signal.SIGCONT)
            with trio.move_on_after(CONTINUE_SECONDS):
                await self._child.wait()
        self._close_pipe()
        return self._child.status

    async def release(self) -> None:
        """Tell the janitor that all is well; wait, kill. Returns once it is reaped; is not cancelled."""
        if self._child is None or self._pipe is None:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, cleanup_daemon.RELEASE)
        self._close_pipe()
        self._child.send_signal(signal.SIGCONT)
        with trio.CancelScope(shield=True):
            await self._child.wait_or_kill(EXIT_TIMEOUT)

    def _close_pipe(self) -> None:
        assert self._pipe is not None
        os.close(self._pipe)
        self._pipe = None


@asynccontextmanager
async def open_cleanup_daemon(
    mark: str, record: Path, environment: Mapping[str, str]
) -> AsyncIterator[CleanupSupervisor]:
    """Have a janitor while the block runs: if this process is killed in it, nothing of the session is left.

    *mark* is the `VARIABLE=SESSION` by which its processes are known, and *record* the file that says who the root is;
    it exists already. *environment* has the mark too, because the daemon is one of them. Run `supervise` in a task.
    If daemon and root are killed at the same moment, or the daemon while the root is stopped, no process is
    left that could notice: then a resume ends what there is, and `coterie doctor` finds it. Enter it before any process
    of the session is started. Raises `StartFailed`.
    """
    post = CleanupSupervisor((mark, str(record)), environment)
    post.start()
    try:
        yield post
    finally:
        await post.release()

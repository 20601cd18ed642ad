"""Supervisor of the cleanup daemon, the process that kills the session's other processes if the root process is killed.

It starts the daemon, restarts it when it dies, and releases it at the end of the session.
"""

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
"""Maximum number of restarts of the daemon in one session."""
CONTINUE_SECONDS = 1.0
"""Seconds between two SIGCONT signals to the daemon, so that a stopped daemon soon runs again."""
EXIT_TIMEOUT = 2.0
"""Maximum seconds for the exit of a released daemon; after that the daemon is killed."""


@attrs.define(eq=False)
class CleanupSupervisor:
    """Supervisor of a cleanup daemon over its restarts. `open_cleanup_daemon` creates it."""

    _arguments: tuple[str, str]
    _environment: Mapping[str, str]
    _child: ChildProcess | None = None
    _pipe: int | None = None
    """Root's end of the pipe to the daemon. It is close-on-exec, so that no other process keeps the pipe open."""

    @property
    def pid(self) -> int | None:
        """Process id of the last daemon started, even if it has ended; None before the first start."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        """Start a daemon and return immediately: a daemon that is ready late still notices that the root has ended.

        Raises `StartFailed`.
        """
        with translate_start_errors():
            daemon_end, root_end = os.pipe()
            try:
                self._child = self._spawn(daemon_end)
            except OSError:
                os.close(root_end)
                raise
            finally:
                os.close(daemon_end)
            self._pipe = root_end

    def _spawn(self, pipe: int) -> ChildProcess:
        # A process group of its own, so that no terminal signals it; but the same session, because then the kernel
        # continues a stopped daemon when the root dies. Started by path and without `site`, because that is fast.
        with os.fdopen(os.pidfd_open(os.getpid()), "rb", buffering=0) as root:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", cleanup_daemon.__file__, *self._arguments],
                self._environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, pipe, 0),
                    (os.POSIX_SPAWN_DUP2, root.fileno(), cleanup_daemon.ROOT_DESCRIPTOR),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                ],
                setpgroup=0,
                setsigmask=cleanup_daemon.IGNORED_SIGNALS,
            )
        try:
            return ChildProcess.of(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)  # before it takes the end of its pipe for the end of the root
            os.waitpid(pid, 0)
            raise

    async def supervise(self, fail: Callable[[str], None]) -> None:
        """Restart the daemon when it ends, and continue it when it is stopped. Call *fail* with the text of each
        failure.

        Returns early if no daemon can be started, or after too many restarts: the session continues without a daemon.
        """
        for _ in range(MAX_RESTARTS):
            status = await self._wait_died()
            fail(f"the cleanup daemon, which cleans up after a crash, ended with status {status}; it is restarted")
            try:
                self.start()
            except StartFailed as exc:
                fail(f"the session runs without cleanup daemon ({exc}); run `coterie doctor` after a crash")
                return
        status = await self._wait_died()
        fail(
            f"the session runs without cleanup daemon, which ended {MAX_RESTARTS + 1} times (last status {status}); "
            "run `coterie doctor` after a crash"
        )

    async def _wait_died(self) -> int:
        """Wait for the unexpected end of the daemon and return its exit status; continue it if it was stopped."""
        assert self._child is not None
        while self._child.status is None:
            self._child.send_signal(signal.SIGCONT)
            with trio.move_on_after(CONTINUE_SECONDS):
                await self._child.wait()
        self._close_pipe()
        return self._child.status

    async def release(self) -> None:
        """Tell the daemon that all processes have ended, and return once it is reaped. Shielded from cancellation."""
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
    """Run a cleanup daemon until the block ends; it kills the processes of the session if this process is killed.

    *mark* is the `VARIABLE=SESSION` that identifies processes of the session; *environment* contains it. *record* is
    the existing file that names the root. Start `supervise` in a task. Enter this block before any process of the
    session starts. If daemon and root are killed at the same moment, or the daemon while the root is stopped, no
    cleanup happens. Then the next resume kills the remaining processes, and `coterie doctor` finds them. Raises
    `StartFailed`.
    """
    supervisor = CleanupSupervisor((mark, str(record)), environment)
    supervisor.start()
    try:
        yield supervisor
    finally:
        await supervisor.release()

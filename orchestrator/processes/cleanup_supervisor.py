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
"""Maximum number of restarts of the daemon in one session."""
CONTINUE_SECONDS = 1.0
"""Seconds between two SIGCONT signals, because the daemon may have been stopped."""
EXIT_TIMEOUT = 2.0
"""Seconds in which a released daemon ends before it is killed."""


@attrs.define(eq=False)
class CleanupSupervisor:
    """Supervisor of the cleanup daemon over its restarts. Made by `open_cleanup_daemon`."""

    _arguments: tuple[str, str]
    _environment: Mapping[str, str]
    _child: ChildProcess | None = None
    _pipe: int | None = None
    """Root's end of the daemon's pipe; close-on-exec, so that no other process inherits it."""

    @property
    def pid(self) -> int | None:
        """Process id of the daemon; None if it is not running."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        """Start a daemon without waiting for it, because it notices an end of the root also later.

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
        """Restart a daemon that ends, and continue one that is stopped, until cancelled; *fail* gets each failure.

        Returns when no daemon can be started or too many have ended; the session continues without one.
        """
        for _ in range(MAX_RESTARTS):
            status = await self._wait_died()
            fail(f"the cleanup daemon ended with status {status} and is restarted")
            try:
                self.start()
            except StartFailed as exc:
                fail(f"the session runs without cleanup daemon: {exc}")
                return
        status = await self._wait_died()
        fail(f"the session runs without cleanup daemon: it was restarted {MAX_RESTARTS} times; last status {status}")

    async def _wait_died(self) -> int:
        """Wait for the unexpected end of the daemon and return its status."""
        assert self._child is not None
        while self._child.status is None:
            self._child.send_signal(signal.SIGCONT)
            with trio.move_on_after(CONTINUE_SECONDS):
                await self._child.wait()
        self._close_pipe()
        return self._child.status

    async def release(self) -> None:
        """Release the daemon, wait, kill it if needed; return once it is reaped. Shielded."""
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
    the existing file of the root record. Run `supervise` in a task. If daemon and root are killed at the same moment,
    or the daemon while the root is stopped, no cleanup happens; then the next resume kills the remaining processes, and
    `coterie doctor` finds them. Enter it before any process of the session is started. Raises `StartFailed`.
    """
    supervisor = CleanupSupervisor((mark, str(record)), environment)
    supervisor.start()
    try:
        yield supervisor
    finally:
        await supervisor.release()

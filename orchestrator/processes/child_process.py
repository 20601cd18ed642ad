"""Handle of a child process, and the start of a module as a child process."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

import attrs
import trio

from coterie.orchestrator.processes.child_registry import CHILDREN


@attrs.define(eq=False)
class ChildProcess:
    """A process that nobody else reaps. Owned by one task, which waits for it."""

    pid: int
    pidfd: int
    status: int | None = None
    """Once it is reaped: its exit status, or the number of the signal that ended it, negative."""

    @classmethod
    def of(cls, pid: int) -> "ChildProcess":
        """The process *pid*, a child that is not reaped yet."""
        child = cls(pid, os.pidfd_open(pid))
        CHILDREN.register(pid)
        return child

    async def wait_ended(self) -> None:
        """Return once the process has ended; it is not reaped, and keeps its number and that of its group."""
        if self.status is None:
            await trio.lowlevel.wait_readable(self.pidfd)

    def has_ended(self) -> bool:
        """Whether `ended` would return at once."""
        if self.status is not None:
            return True
        return os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    async def wait(self) -> int:
        """Return the status once the process has ended; it is reaped then, and its number free for others.

        Cancellation leaves the process as it is, to be waited for again. One task waits at a time.
        """
        if self.status is None:
            await trio.lowlevel.wait_readable(self.pidfd)
            self._reap()
        assert self.status is not None
        return self.status

    async def wait_or_kill(self, grace: float) -> int:
        """As `wait`, for one that was asked to end: it is killed if it has not ended in *grace* seconds."""
        with trio.move_on_after(grace):
            return await self.wait()
        self.send_signal(signal.SIGKILL)
        return await self.wait()

    def send_signal(self, number: int) -> None:
        """Send a signal to the process alone; nothing happens if it has ended."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def send_signal_to_group(self, number: int) -> None:
        """Send a signal to all processes of its group, also when it has ended itself, but not once it is reaped."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left, or none that is ours
                os.killpg(self.pid, number)

    def _reap(self) -> None:
        ended = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED)
        assert ended is not None
        self.status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        os.close(self.pidfd)
        CHILDREN.unregister(self.pid)


def start_module(
    module: str,
    arguments: Sequence[str],
    *,
    passed: Sequence[int],
    environment: Mapping[str, str] | None,
    stderr: int | None = None,
) -> ChildProcess:
    """Run `python -P -m MODULE` in a session of its own, with the descriptors *passed* under the same numbers.

    Without *environment* and *stderr* it has ours. Raises `OSError`, or `ValueError` for an environment
    that cannot be.
    """
    # In a thread of trio's it would die with that thread, which lives for ten idle seconds.
    assert threading.current_thread() is threading.main_thread(), "a process dies with the thread that started it"
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env=environment,
        pass_fds=passed,
        start_new_session=True,
    )
    try:
        child = ChildProcess.of(process.pid)
    except OSError:
        process.kill()
        process.wait()
        raise
    process.returncode = 0  # so that `subprocess` takes it for reaped, and leaves that to the child's owner
    return child

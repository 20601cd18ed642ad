"""A started process as its owner holds it: by a descriptor that no other process can come to mean."""

import contextlib
import os
import signal

import attrs
import trio

from coterie.orchestrator.starting.offspring import OURS


@attrs.define(eq=False)
class Child:
    """A process that nobody else reaps. Owned by one task, which waits for it."""

    pid: int
    pidfd: int
    status: int | None = None
    """Once it is reaped: its exit status, or the number of the signal that ended it, negative."""

    @classmethod
    def of(cls, pid: int) -> "Child":
        """The process *pid*, a child that is not reaped yet."""
        child = cls(pid, os.pidfd_open(pid))
        OURS.own(pid)
        return child

    async def ended(self) -> None:
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
        OURS.disown(self.pid)

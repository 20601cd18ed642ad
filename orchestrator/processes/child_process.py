"""Child processes of this process: a handle for each, their registry, and a task that reaps adopted orphans.

The root process is a subreaper: it becomes the parent of every descendant whose parent has ended, for example of a
background command whose shell has ended. No task waits for these orphans, so the reaper must reap them.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import attrs
import trio

from coterie.process_identity import list_child_pids, read_stat


@attrs.define(eq=False)
class ChildRegistry:
    """Registry of the children that a task of this process waits for. There is one instance, `CHILDREN`."""

    owned: set[int] = attrs.field(factory=set)
    """Pids of the children that a task waits for and reaps, so that the reaper ignores them."""
    _expected: int = 0

    @contextmanager
    def start_pending(self) -> Iterator[None]:
        """Pause the reaper in the block: a child whose pid is not in the registry yet would be reaped as an orphan."""
        self._expected += 1
        try:
            yield
        finally:
            self._expected -= 1

    def adopted(self) -> list[int]:
        """Return the pids of the adopted orphans, alive or zombie. The list is empty while a start is pending.

        Children that other code has started with `subprocess` are in the POSIX session of this process, so they are
        not orphans.
        """
        if self._expected:
            return []
        own_session = os.getsid(0)
        unowned = ((pid, read_stat(pid)) for pid in list_child_pids() if pid not in self.owned)
        # A process keeps its session until it is reaped; it has no stat if another thread has reaped it.
        return [pid for pid, stat in unowned if stat is not None and stat.session != own_session]

    def reap_adopted(self) -> list[int]:
        """Reap the adopted orphans that have ended, and return their pids."""
        return [pid for pid in self.adopted() if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None]


CHILDREN = ChildRegistry()


async def run_reaper() -> None:
    """Reap adopted orphans when they end, until cancelled. Run it on the main thread, because it uses SIGCHLD."""
    with trio.open_signal_receiver(signal.SIGCHLD) as signals:
        CHILDREN.reap_adopted()
        async for _ in signals:
            CHILDREN.reap_adopted()


@attrs.define(eq=False)
class ChildProcess:
    """Handle of a child process. One task owns it: this task waits for the process and reaps it."""

    pid: int
    pidfd: int
    status: int | None = None
    """Exit status, or the negative number of the signal that ended the process; None until the process is reaped."""

    @classmethod
    def of(cls, pid: int) -> "ChildProcess":
        """Return the handle of *pid*, a child of this process that is not reaped yet. The reaper then ignores *pid*."""
        child = cls(pid, os.pidfd_open(pid))
        CHILDREN.owned.add(pid)
        return child

    async def wait_ended(self) -> None:
        """Wait for the end of the process without reaping it, so that its pid and process group id stay reserved."""
        if self.status is None:
            await trio.lowlevel.wait_readable(self.pidfd)

    def has_ended(self) -> bool:
        """Return True if the process has ended, whether or not it is reaped."""
        if self.status is not None:
            return True
        return os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    async def wait(self) -> int:
        """Wait for the end of the process, reap it, and return its `status`.

        A cancelled wait can be repeated. Only one task may wait at a time.
        """
        if self.status is None:
            await trio.lowlevel.wait_readable(self.pidfd)
            self._reap()
        assert self.status is not None
        return self.status

    async def wait_or_kill(self, grace: float) -> int:
        """Wait up to *grace* seconds for the end of the process, then send SIGKILL. Reap it and return its `status`."""
        with trio.move_on_after(grace):
            return await self.wait()
        self.send_signal(signal.SIGKILL)
        return await self.wait()

    def send_signal(self, number: int) -> None:
        """Send signal *number* to the process, but not to its group. No-op if the process has ended."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def send_signal_to_group(self, number: int) -> None:
        """Send signal *number* to the process group, even after the process has ended. No-op once it is reaped."""
        if self.status is None:
            with contextlib.suppress(
                ProcessLookupError, PermissionError
            ):  # the group is empty, or has only processes of other users
                os.killpg(self.pid, number)

    def _reap(self) -> None:
        ended = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED)
        assert ended is not None
        self.status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        os.close(self.pidfd)
        CHILDREN.owned.discard(self.pid)


def start_module(
    module: str,
    arguments: Sequence[str],
    *,
    passed: Sequence[int],
    environment: Mapping[str, str] | None,
    stderr: int | None = None,
) -> ChildProcess:
    """Run `python -P -m MODULE` as a child in a new POSIX session, with the descriptors *passed* under equal numbers.

    None for *environment* or *stderr* means that of this process. Raises `OSError` if the child cannot be started, and
    `ValueError` for an invalid environment. Call it on the main thread.
    """
    # The death signal follows the starting thread, and a worker thread of trio ends after ten idle seconds.
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
    process.returncode = 0  # makes `subprocess` treat it as reaped, because `ChildProcess` reaps it
    return child

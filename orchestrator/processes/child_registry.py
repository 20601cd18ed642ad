"""Registry of the children of this process, and the reaper of adopted orphans.

A subreaper becomes the parent of all orphaned descendants, for example of a background command whose shell has ended,
or of the shells of a killed agent. No task waits for these processes.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

from coterie.process_identity import list_child_pids, read_stat


@attrs.define(eq=False)
class ChildRegistry:
    """Registry of the children that tasks of this process wait for; there is one instance, `CHILDREN`."""

    _owned: set[int] = attrs.field(factory=set)
    _expected: int = 0

    def register(self, pid: int) -> None:
        """Register *pid* as owned by a task, so that the reaper does not reap it."""
        self._owned.add(pid)

    def unregister(self, pid: int) -> None:
        """Remove *pid*, which is reaped."""
        self._owned.discard(pid)

    def is_unknown(self, pid: int) -> bool:
        """Return True if no task owns *pid*: it is an orphan, or a child whose pid is not reported yet."""
        return pid not in self._owned

    @contextmanager
    def start_pending(self) -> Iterator[None]:
        """Suspend the reaper within the block, because a new child with unknown pid looks like an orphan."""
        self._expected += 1
        try:
            yield
        finally:
            self._expected -= 1

    def adopted(self) -> list[int]:
        """Return the adopted orphans, living or ended; empty while a start is pending.

        Children started by other code with `subprocess` are recognised by their session, which is that of this process.
        """
        if self._expected:
            return []
        own_session = os.getsid(0)
        unowned = ((pid, read_stat(pid)) for pid in list_child_pids() if pid not in self._owned)
        # A process keeps its session until it is reaped; it has no stat if another thread has reaped it.
        return [pid for pid, stat in unowned if stat is not None and stat.session != own_session]

    def reap_adopted(self) -> list[int]:
        """Reap the orphans that have ended, and return their pids."""
        return [pid for pid in self.adopted() if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None]


CHILDREN = ChildRegistry()


async def run_reaper() -> None:
    """Reap orphans as they end, until cancelled. Run it on the main thread, which is the parent of orphans."""
    with trio.open_signal_receiver(signal.SIGCHLD) as signals:
        CHILDREN.reap_adopted()
        async for _ in signals:
            CHILDREN.reap_adopted()

"""Registry of the children of this process, and the reaper of adopted orphans.

A process that adopts orphans gets those of all its descendants, for example a command in the background whose shell has
ended, or the shells of an agent that was killed. Nobody waits for these.
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
    """What is known of the children of this process; there is one, as there is one table of processes."""

    _owned: set[int] = attrs.field(factory=set)
    _expected: int = 0

    def register(self, pid: int) -> None:
        """Somebody waits for *pid*: leave it alone."""
        self._owned.add(pid)

    def unregister(self, pid: int) -> None:
        """*pid* is reaped, and free for others."""
        self._owned.discard(pid)

    def is_unknown(self, pid: int) -> bool:
        """Whether nobody waits for *pid*: an orphan, or a child of which one has not heard yet."""
        return pid not in self._owned

    @contextmanager
    def start_pending(self) -> Iterator[None]:
        """While the block runs a child may come whose number is not known yet: no orphan can be told from it."""
        self._expected += 1
        try:
            yield
        finally:
            self._expected -= 1

    def adopted(self) -> list[int]:
        """The orphans, living or ended, that are children of the main thread now; none while a child is expected.

        What others start from here on the main thread, with `subprocess`, is told by its session, which must be ours.
        """
        if self._expected:
            return []
        return [pid for pid in list_child_pids() if pid not in self._owned and _is_of_another_session(pid)]

    def reap_adopted(self) -> list[int]:
        """Reap the orphans that have ended, and return which they were."""
        return [pid for pid in self.adopted() if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None]


CHILDREN = ChildRegistry()


async def run_reaper() -> None:
    """Reap orphans as they end, until cancelled. Run it on the main thread, where a process adopts."""
    with trio.open_signal_receiver(signal.SIGCHLD) as endings:
        CHILDREN.reap_adopted()
        async for _ in endings:
            CHILDREN.reap_adopted()


def _is_of_another_session(pid: int) -> bool:
    """Than this process; one that has ended keeps its session until it is reaped."""
    stat = read_stat(pid)
    # If there is none, it is reaped by now, in a thread of whoever had started it.
    return stat is not None and stat.session != os.getsid(0)

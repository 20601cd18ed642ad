"""Many wait for one write: whoever comes while it runs shares the next one.

A hop to a thread and back costs as much as the sync of a good disk. So the write is made in place while the last ones
were quick, and in a thread while they were not. Waiting for others costs a turn of the event loop. So who comes alone
waits for nobody, but for once in a while.
"""

import time
from collections.abc import Callable

import attrs
import trio

QUICK = 0.002
"""Seconds that writes may take to be made in place: no task would notice it."""
_SHARE = 1 / 8
"""Of the last write in what they take, so that one that the disk held up does not send the others to a thread."""
_LONELY = 0.05
"""Seconds for which somebody who has shared with nobody does not wait for others to come."""


@attrs.define(eq=False)
class _Round:
    """Those who share one run."""

    sharers: int = 0
    is_over: bool = False
    failure: OSError | None = None


@attrs.define(eq=False)
class GroupCommit:
    """Runs a blocking function, once for all who asked before it began.

    *begin* is called in the task and gives the function, which may run in a thread; so *begin* may look at what tasks
    change, and the function may not.
    """

    _begin: Callable[[], Callable[[], None]]
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _next: _Round = attrs.field(factory=_Round, init=False)
    _seconds: float = attrs.field(default=1.25 * QUICK, init=False)
    """What writes take, on average; of a disk that nobody knows yet, too long."""
    _lonely_until: float = attrs.field(default=0.0, init=False)

    async def run(self) -> None:
        """Return once a run that began after this call has ended. Raises the `OSError` of that run.

        All who share it fail with it: after a failed sync another one may succeed although the bytes are gone.
        """
        shared = self._next
        shared.sharers += 1
        # All tasks that are ready have their turn first, so whoever of them asks, too, shares it.
        await trio.lowlevel.checkpoint()
        if self._is_free and not shared.is_over:
            await self._lead(shared)
        if not shared.is_over:
            async with self._lock:
                if not shared.is_over:
                    await self._lead(shared)
        if shared.failure is not None:
            raise shared.failure

    async def run_soon(self) -> None:
        """As `run`, for one who lets other tasks have their turn now and then: this may not."""
        if self._is_free and trio.current_time() < self._lonely_until:
            self._run(self._begin())
        else:
            await self.run()

    async def _lead(self, shared: _Round) -> None:
        self._next = _Round()
        write = self._begin()
        try:
            if self._is_quick:
                self._run(write)
            else:
                await trio.to_thread.run_sync(self._run, write)
        except OSError as exc:
            shared.failure = exc
        shared.is_over = True
        self._lonely_until = trio.current_time() + _LONELY if shared.sharers == 1 else 0.0

    @property
    def _is_free(self) -> bool:
        """Whether a write can be made in place: no other task can come in between, so it needs no lock."""
        return self._is_quick and not self._lock.locked()

    @property
    def _is_quick(self) -> bool:
        return self._seconds < QUICK

    def _run(self, write: Callable[[], None]) -> None:
        began = time.perf_counter()
        write()
        self._seconds += (time.perf_counter() - began - self._seconds) * _SHARE

"""Group commit: tasks that want to write to disk at the same time share one write, such as one sync of a log.

Moving a write to a thread costs as much as a sync of a fast disk. So a write runs in the event loop while recent writes
were fast, and in a thread otherwise. Waiting for other callers costs a turn of the event loop, so a task that was
recently the only caller skips the wait for most of its writes.
"""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

import attrs
import trio

QUICK = 0.002
"""Average duration of writes in seconds below which they run in the event loop, because they hardly block it."""
_SHARE = 1 / 8
"""Weight of the last write in the average duration; small, so that one slow write does not move writes to a thread."""
_LONELY = 50
"""Number of writes that a task makes without waiting for others to join, after it was the only caller of a write."""

T = TypeVar("T")


@attrs.define(eq=False)
class _Round:
    """One shared write: the number of callers that share it, and its outcome once it is over."""

    sharers: int = 0
    is_over: bool = False
    failure: OSError | None = None


@attrs.define(eq=False)
class GroupCommit(Generic[T]):
    """Performs one write for all tasks that called `run` before the write began.

    For each write, *take* returns the data of all callers, and *write* writes this data. *take* runs in the event loop.
    *write* blocks and may run in a thread, so it must not access state that tasks change.
    """

    _take: Callable[[], T]
    _write: Callable[[T], None]
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _next: _Round = attrs.field(factory=_Round, init=False)
    _seconds: float = attrs.field(default=1.25 * QUICK, init=False)
    """Moving average of the duration of writes in seconds; initially above `QUICK`, so first writes use a thread."""
    _lonely: int = attrs.field(default=0, init=False)
    """Number of next writes without a wait for other callers; above 0 only if writes are fast and one task calls."""

    async def run(self) -> None:
        """Return when a write that began after this call has ended; other callers may share it. Raises `OSError`.

        If the write fails, all callers that share it get the error. It is not retried, because after a failed sync a
        retry may succeed although the data is lost.
        """
        shared = self._next
        shared.sharers += 1
        # All runnable tasks get a turn first, so that those that call `run` share the write.
        await trio.lowlevel.checkpoint()
        if self._is_quick and not self._lock.locked() and not shared.is_over:
            await self._lead(shared)  # without a checkpoint, so that no other task can intervene
        if not shared.is_over:
            async with self._lock:
                if not shared.is_over:
                    await self._lead(shared)
        if shared.failure is not None:
            raise shared.failure

    def run_exclusive(self) -> bool:
        """Write now and return True; or write nothing and return False: the caller must use `run`. Raises `OSError`."""
        if not self._lonely:
            return False
        self._lonely -= 1
        self._run(self._take())
        return True

    async def _lead(self, shared: _Round) -> None:
        self._next, self._lonely = _Round(), 0
        taken = self._take()
        try:
            if self._is_quick:
                self._run(taken)
            else:
                await trio.to_thread.run_sync(self._run, taken)
        except OSError as exc:
            shared.failure = exc
        shared.is_over = True
        self._lonely = _LONELY if shared.sharers == 1 and self._is_quick else 0

    @property
    def _is_quick(self) -> bool:
        return self._seconds < QUICK

    def _run(self, taken: T) -> None:
        began = time.perf_counter()
        self._write(taken)
        self._seconds += (time.perf_counter() - began - self._seconds) * _SHARE
        if self._seconds >= QUICK:
            self._lonely = 0

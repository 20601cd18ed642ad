"""Group commit: concurrent callers share one write.

A thread hop costs as much as a sync of a good disk. So the write runs in the event loop while recent writes were fast,
and in a thread otherwise. Waiting for other callers costs a turn of the event loop, so a task that has been the only
caller skips it for most of its writes.
"""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

import attrs
import trio

QUICK = 0.002
"""Average duration in seconds up to which writes run in the event loop: other tasks do not notice it."""
_SHARE = 1 / 8
"""Weight of the last write in the average, so that one slow write does not move the others to a thread."""
_LONELY = 50
"""Number of writes that a single caller makes without waiting for other callers."""

T = TypeVar("T")


@attrs.define(eq=False)
class _Round:
    """Callers that share one write, and its outcome."""

    sharers: int = 0
    is_over: bool = False
    failure: OSError | None = None


@attrs.define(eq=False)
class GroupCommit(Generic[T]):
    """Performs one write for all callers that asked before it began.

    *take* runs in the event loop and returns the data; *write* blocks, and may run in a thread. So *take* may access
    state that tasks change, and *write* must not.
    """

    _take: Callable[[], T]
    _write: Callable[[T], None]
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _next: _Round = attrs.field(factory=_Round, init=False)
    _seconds: float = attrs.field(default=1.25 * QUICK, init=False)
    """Average duration of writes; initially above the limit, because the speed of the disk is unknown."""
    _lonely: int = attrs.field(default=0, init=False)
    """Remaining writes that need not wait for other callers; 0 unless writes are fast and no other caller waits."""

    async def run(self) -> None:
        """Return when a write that began after this call has ended. Raises its `OSError`.

        All callers that share the write fail with it: after a failed sync, a retry may succeed although the data is
        lost.
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
        """Write immediately, without a checkpoint. Return False, without writing, if another caller came lately."""
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

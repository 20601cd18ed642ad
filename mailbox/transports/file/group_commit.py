"""Many wait for one write: whoever comes while it runs shares the next one.

A hop to a thread and back costs as much as the sync of a good disk. So the write is made in place while the last ones
were quick, and in a thread while they were not. Waiting for others costs a turn of the event loop. So who comes alone
waits for nobody, but for once in a while.
"""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

import attrs
import trio

QUICK = 0.002
"""Seconds that writes may take to be made in place: no task would notice it."""
_SHARE = 1 / 8
"""Of the last write in what they take, so that one that the disk held up does not send the others to a thread."""
_LONELY = 50
"""Writes for which somebody who has shared with nobody does not wait for others to come."""

T = TypeVar("T")


@attrs.define(eq=False)
class _Round:
    """Those who share one write."""

    sharers: int = 0
    is_over: bool = False
    failure: OSError | None = None


@attrs.define(eq=False)
class GroupCommit(Generic[T]):
    """Writes what there is to write, once for all who asked before that began.

    *take* is called in the task, and gives it; *write* blocks, and may be called in a thread. So *take* may look at
    what tasks change, and *write* may not.
    """

    _take: Callable[[], T]
    _write: Callable[[T], None]
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _next: _Round = attrs.field(factory=_Round, init=False)
    _seconds: float = attrs.field(default=1.25 * QUICK, init=False)
    """What writes take, on average; of a disk that nobody knows yet, too long."""
    _lonely: int = attrs.field(default=0, init=False)
    """How many more writes need not wait for others; none unless they are quick, and nobody is at it."""

    async def run(self) -> None:
        """Return once a write that began after this call has ended. Raises its `OSError`.

        All who share it fail with it: after a failed sync another one may succeed although the bytes are gone.
        """
        shared = self._next
        shared.sharers += 1
        # All tasks that are ready have their turn first, so whoever of them asks, too, shares it.
        await trio.lowlevel.checkpoint()
        if self._is_quick and not self._lock.locked() and not shared.is_over:
            await self._lead(shared)  # in place, so that nobody else can come in between
        if not shared.is_over:
            async with self._lock:
                if not shared.is_over:
                    await self._lead(shared)
        if shared.failure is not None:
            raise shared.failure

    def run_exclusive(self) -> bool:
        """As `run`, in place; whether that could be, because nobody else has come lately. Others have no turn then."""
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

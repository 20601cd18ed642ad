"""Many wait for one slow write: whoever comes while it runs shares the next one."""

from collections.abc import Callable

import attrs
import trio


@attrs.define(eq=False)
class _Round:
    """Those who share one run."""

    is_over: bool = False
    failure: OSError | None = None


@attrs.define(eq=False)
class GroupCommit:
    """Runs a blocking function in a thread, once for all who asked before it began.

    *begin* is called in the task and gives the function for the thread, so it may look at what tasks change.
    """

    _begin: Callable[[], Callable[[], None]]
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _next: _Round = attrs.field(factory=_Round, init=False)

    async def run(self) -> None:
        """Return once a run that began after this call has ended. Raises the `OSError` of that run.

        All who share it fail with it: after a failed sync another one may succeed although the bytes are gone.
        """
        shared = self._next
        async with self._lock:
            if not shared.is_over:
                await self._lead(shared)
        if shared.failure is not None:
            raise shared.failure

    async def _lead(self, shared: _Round) -> None:
        self._next = _Round()
        try:
            await trio.to_thread.run_sync(self._begin())
        except OSError as exc:
            shared.failure = exc
        shared.is_over = True

"""Whether a session that a program has opened still runs, and how its root took leave."""

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

from coterie.orchestrator.root_process.hearing import LastWord


@attrs.define(eq=False)
class Life:
    """The time in which a session runs, for those who wait for what happens in it."""

    outcome: LastWord | None = None
    """The last word of its root; None before it, and if it was killed or left before."""
    is_left: bool = False
    """Whether the block of a session that goes on alone has ended, so that nobody knows."""
    _is_over: trio.Event = attrs.field(factory=trio.Event, init=False)
    _lasting: set[trio.CancelScope] = attrs.field(factory=set, init=False)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more, or nobody hears of it any more."""
        return self._is_over.is_set()

    def end(self, outcome: LastWord | None) -> None:
        """It is over; only what is said first counts."""
        if not self.is_over:
            self.outcome = outcome
            self._is_over.set()
        for scope in self._lasting:
            scope.cancel()

    async def ended(self) -> None:
        """Return when it is over."""
        await self._is_over.wait()

    @contextmanager
    def lasting(self) -> Iterator[None]:
        """Leave the block when it is over, at the latest."""
        with trio.CancelScope() as scope:
            self._lasting.add(scope)
            if self.is_over:
                scope.cancel()
            try:
                yield
            finally:
                self._lasting.remove(scope)

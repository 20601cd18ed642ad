"""Named signals by which scripted replies wait for each other."""

from collections.abc import Iterable

import attrs
import trio

from coterie.scenarios.api_server.request.errors import invalid_request


@attrs.define(eq=False)
class ScriptSignals:
    """Raised and awaited signals.

    A signal stays raised, so the order of raising and waiting is free.
    """

    limit: int = 1_000
    """Maximum number of names that are raised or awaited at one time."""
    _raised: set[str] = attrs.field(factory=set, init=False)
    _waiting: dict[trio.Event, frozenset[str]] = attrs.field(factory=dict, init=False)
    """Names that each waiting task needs."""

    @property
    def raised(self) -> list[str]:
        """Raised names, sorted."""
        return sorted(self._raised)

    @property
    def awaited(self) -> list[str]:
        """Names that a task waits for and that are not raised, sorted."""
        return sorted(frozenset().union(*self._waiting.values()) - self._raised)

    def raise_signal(self, name: str) -> None:
        """Raise *name* and wake tasks that waited only for it. Idempotent. Raises `ApiError` beyond the limit."""
        self._admit({name})
        self._raised.add(name)
        for event, needed in self._waiting.items():
            if needed <= self._raised:
                event.set()

    async def wait(self, names: Iterable[str]) -> None:
        """Wait until all of *names* have been raised at the same time; always a checkpoint.

        Cancellation leaves no state. Raises `ApiError` beyond the limit.
        """
        needed = frozenset(names)
        await trio.lowlevel.checkpoint()
        if needed <= self._raised:
            return
        self._admit(needed)
        event = trio.Event()
        self._waiting[event] = needed
        try:
            await event.wait()
        finally:
            del self._waiting[event]

    def _admit(self, names: Iterable[str]) -> None:
        known = self._raised.union(*self._waiting.values())
        if not known.issuperset(names) and len(known.union(names)) > self.limit:
            raise invalid_request(f"{self.limit:,} signals are raised or awaited already; use fewer names")

"""Named signals with which scripted replies wait for each other, so that the order of several agents is repeatable."""

from collections.abc import Iterable

import attrs
import trio

from coterie.scenarios.api_server.request.errors import invalid_request


@attrs.define(eq=False)
class ScriptSignals:
    """The raised signals of a server, and the replies that wait for signals.

    A signal stays raised, so a reply that starts to wait for it later continues immediately.
    """

    limit: int = 1_000
    """Maximum number of different signal names that are raised or awaited at one time."""
    _raised: set[str] = attrs.field(factory=set, init=False)
    _waiting: dict[trio.Event, frozenset[str]] = attrs.field(factory=dict, init=False)
    """Signal names that each waiting task needs."""

    @property
    def raised(self) -> list[str]:
        """Names of the raised signals, sorted."""
        return sorted(self._raised)

    @property
    def awaited(self) -> list[str]:
        """Names of the signals for which a task waits and that are not raised yet, sorted."""
        return sorted(frozenset().union(*self._waiting.values()) - self._raised)

    def raise_signal(self, name: str) -> None:
        """Raise the signal *name*, and wake each task whose signals are then all raised; a repetition has no effect.

        Raises `ApiError` (400) if there are more than `limit` names.
        """
        self._admit({name})
        self._raised.add(name)
        for event, needed in self._waiting.items():
            if needed <= self._raised:
                event.set()

    async def wait(self, names: Iterable[str]) -> None:
        """Wait until all signals in *names* are raised; always a checkpoint.

        If cancelled, the task no longer counts as waiting. Raises `ApiError` (400) if there are more than `limit`
        names.
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

"""A session as a stream of events that goes on for as long as somebody looks."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import attrs
import trio

from coterie.orchestrator.events.changes import Changes, open_changes
from coterie.orchestrator.events.observed import Observed
from coterie.orchestrator.events.reader import SessionReader


@attrs.define(eq=False)
class Follower:
    """What happens in a session, event after event, without an end of its own."""

    _reader: SessionReader
    _changes: Changes
    _arrived: Iterator[Observed] = attrs.field(factory=lambda: iter(()), init=False)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Observed:
        """The next event. Cancellation loses none. Raises `OSError`."""
        await trio.lowlevel.checkpoint()
        while (event := self.take_nowait()) is None:
            await self._changes.wait()
        return event

    def take_nowait(self) -> Observed | None:
        """The next event that is there already, or None. Raises `OSError`."""
        # Read inline: it is what was appended since the last look, fresh in memory.
        if (event := next(self._arrived, None)) is not None:
            return event
        # Watched before they are read, so that nothing is written in between unseen.
        for directory in self._directories():
            self._changes.watch(directory)
        self._arrived = self._reader.sweep()
        return next(self._arrived, None)

    def skip(self) -> None:
        """Pass over everything that is there already. Raises `OSError`."""
        while self.take_nowait() is not None:
            pass

    def _directories(self) -> list[Path]:
        session = self._reader.directory
        return [session, session / "agents", *self._reader.agent_directories()]


@asynccontextmanager
async def open_follower(directory: Path, agent: str | None = None) -> AsyncIterator[Follower]:
    """Follow the session of *directory*, or one *agent* of it, from its beginning; agents may join later."""
    with open_changes() as changes:
        yield Follower(SessionReader(directory, agent), changes)

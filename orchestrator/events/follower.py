"""Live stream of the events of a session, while its agents write them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import attrs
import trio

from coterie.agents.events.event_reader import SessionEvent
from coterie.directory_watch import PollingDirectoryWatch, open_polling_watch
from coterie.orchestrator.events.session_reader import SessionReader


@attrs.define(eq=False)
class EventFollower:
    """Endless asynchronous iterator over the events of a session; it waits for new events."""

    _reader: SessionReader
    _changes: PollingDirectoryWatch
    _arrived: Iterator[SessionEvent] = attrs.field(factory=lambda: iter(()), init=False)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionEvent:
        """Wait for the next event. Cancellation loses no event. Raises `OSError`."""
        await trio.lowlevel.checkpoint()
        while (event := self.take_nowait()) is None:
            await self._changes.wait()
        return event

    def take_nowait(self) -> SessionEvent | None:
        """Return the next event if one can be read now, else None. Raises `OSError`."""
        # Read without a thread: recently appended bytes are in the page cache.
        if (event := next(self._arrived, None)) is not None:
            return event
        # Watch before reading, so that a write in between is not missed.
        session = self._reader.directory
        for directory in (session, session / "agents", *self._reader.agent_directories()):
            self._changes.watch(directory)
        self._arrived = self._reader.read_new()
        return next(self._arrived, None)

    def skip(self) -> None:
        """Discard all events that can be read now. Raises `OSError`."""
        while self.take_nowait() is not None:
            pass


@asynccontextmanager
async def open_follower(directory: Path, agent: str | None = None) -> AsyncIterator[EventFollower]:
    """Yield a stream of past and new events of the session in *directory*, or of *agent*; includes new agents."""
    with open_polling_watch() as changes:
        yield EventFollower(SessionReader(directory, agent), changes)

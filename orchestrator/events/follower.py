"""Live stream of the events of a session."""

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
    """What happens in a session, event after event, without an end of its own."""

    _reader: SessionReader
    _changes: PollingDirectoryWatch
    _arrived: Iterator[SessionEvent] = attrs.field(factory=lambda: iter(()), init=False)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionEvent:
        """The next event. Cancellation loses none. Raises `OSError`."""
        await trio.lowlevel.checkpoint()
        while (event := self.take_nowait()) is None:
            await self._changes.wait()
        return event

    def take_nowait(self) -> SessionEvent | None:
        """The next event that is there already, or None. Raises `OSError`."""
        # Read inline: it is what was appended since the last look, fresh in memory.
        if (event := next(self._arrived, None)) is not None:
            return event
        # Watched before they are read, so that nothing is written in between unseen.
        for directory in self._directories():
            self._changes.watch(directory)
        self._arrived = self._reader.read_new()
        return next(self._arrived, None)

    def skip(self) -> None:
        """Pass over everything that is there already. Raises `OSError`."""
        while self.take_nowait() is not None:
            pass

    def _directories(self) -> list[Path]:
        session = self._reader.directory
        return [session, session / "agents", *self._reader.agent_directories()]


@asynccontextmanager
async def open_follower(directory: Path, agent: str | None = None) -> AsyncIterator[EventFollower]:
    """Follow the session of *directory*, or one *agent* of it, from its beginning; agents may join later."""
    with open_polling_watch() as changes:
        yield EventFollower(SessionReader(directory, agent), changes)

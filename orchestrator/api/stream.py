"""The events of a session as a program reads them: from the moment it was opened until it is over."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import attrs

from coterie.orchestrator.api.life import Life
from coterie.orchestrator.events.following import Follower, open_follower
from coterie.orchestrator.events.observed import Observed
from coterie.orchestrator.events.reader import read_session


@attrs.define(eq=False)
class EventStream:
    """An async iterator that owns no task. It ends when the session is over, and all that happened was given."""

    _follower: Follower
    _life: Life
    _past: Counter[str]
    """How many events of each agent are still to be passed over."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Observed:
        """The next event. Cancellation loses none. Raises `OSError`."""
        while (observed := await self._next()) is not None:
            if not self._past[observed.agent]:
                return observed
            self._past[observed.agent] -= 1
        raise StopAsyncIteration

    async def _next(self) -> Observed | None:
        with self._life.lasting():
            return await anext(self._follower)
        return self._follower.take_nowait()


def count_past(directory: Path) -> Counter[str]:
    """How many events of each agent the session of *directory* has. Blocks on the disk; raises `OSError`."""
    return Counter(observed.agent for observed in read_session(directory))


@asynccontextmanager
async def open_stream(directory: Path, life: Life, past: Counter[str]) -> AsyncIterator[EventStream]:
    """The events of the session of *directory* that stand behind the *past* ones."""
    async with open_follower(directory) as follower:
        yield EventStream(follower, life, past.copy())

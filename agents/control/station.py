"""The agent's end of its control socket: what the root says is heard for as long as the agent works."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from coterie.agents.control.gate import RemoteGate
from coterie.agents.control.line import Line, open_line
from coterie.agents.control.spawner import RemoteSpawner
from coterie.agents.control.words import (
    Activity,
    Admitted,
    Begun,
    Deliver,
    Doing,
    NotBegun,
    Refused,
    RootWord,
    root_words,
)
from coterie.agents.errors import ControlLost
from coterie.mailbox.envelope import Envelope

Take = Callable[[Envelope], Awaitable[object]]
"""Stores a message that is believed, so that the agent finds it in its mailbox."""


@attrs.frozen
class Station:
    """What an agent has of its root."""

    gate: RemoteGate
    spawner: RemoteSpawner
    _line: Line[RootWord]

    def tell(self, activity: Activity, what: str = "") -> None:
        """Say what the agent does from now on. Raises `ControlLost`."""
        self._line.say(Doing(activity=activity, what=what))


@asynccontextmanager
async def open_station(stream: trio.SocketStream, take: Take) -> AsyncIterator[Station]:
    """Talk to the root over *stream* until the block ends; believed mail goes to *take*.

    When the root has gone, or cannot be understood, the block is cancelled and `ControlLost` raised: an agent that
    nobody supervises must end.
    """
    lost: ControlLost | None = None
    async with open_line(stream, root_words) as line:
        station = Station(RemoteGate(line.say), RemoteSpawner(line.say), line)
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                nonlocal lost
                try:
                    await _listen(line, station, take)
                except ControlLost as exc:
                    lost = exc
                    nursery.cancel_scope.cancel()

            nursery.start_soon(listen, name="control")
            yield station
            nursery.cancel_scope.cancel()
    if lost is not None:  # raised out here, where it is not put into a group
        raise lost


async def _listen(line: Line[RootWord], station: Station, take: Take) -> None:
    while (word := await line.hear()) is not None:
        match word:
            case Admitted() | Refused():
                station.gate.hear(word)
            case Begun() | NotBegun():
                station.spawner.hear(word)
            case Deliver():
                await take(word.envelope())
    raise ControlLost("the root has gone")

"""Event log: one file of typed events for each process.

Events contain only what no other file records. Messages, and the usage of each reply, are in the transcript; a reader
of a session merges both.
"""

from pathlib import Path
from typing import Self, get_args

import attrs
import msgspec

from coterie.agents.events.agent_events import AgentEvent, Event
from coterie.agents.events.layer_events import LayerEvent
from coterie.agents.events.root_events import RootEvent
from coterie.clock import Clock
from coterie.files import Appender

VERSION = 1


AnyEvent = AgentEvent | LayerEvent | RootEvent
EVENTS: tuple[type[Event], ...] = get_args(AnyEvent)


@attrs.define(eq=False)
class EventLog:
    """Events of one process, in a file that only this process writes."""

    agent: str
    _clock: Clock
    _appender: Appender

    @classmethod
    def open(cls, path: Path, agent: str, clock: Clock) -> "EventLog":
        """Open or create *path*; terminate a line that a crash left unfinished. Raises `OSError`."""
        appender = Appender.open(path)
        if not _ends_with_newline(path):
            appender.append(b"\n")
        return cls(agent, clock, appender)

    def emit(self, event: Event) -> None:
        """Append *event* with the time and the agent's name, in one write. Raises `OSError`."""
        self._appender.append(write_event(event, self.agent, self._clock.now()))

    def close(self) -> None:
        """Close the file; a later `emit` is an error."""
        self._appender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_event(event: Event, agent: str, at: float) -> bytes:
    """Encode *event* as one line: version, time and agent first, then its members."""
    start = msgspec.json.encode({"v": VERSION, "at": at, "agent": agent})
    return start[:-1] + b"," + msgspec.json.encode(event)[1:] + b"\n"


def discard_event(_event: Event) -> None:
    """Ignore an event; for agents without an event log."""


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size == 0:
            return True
        file.seek(size - 1)
        return file.read(1) == b"\n"

"""Event log: one file of typed events for each process.

Events contain only what no other file records. Messages, and the usage of each reply, are in the transcript; a reader
of a session merges both.
"""

import os
from pathlib import Path
from typing import Any, Self, Union

import attrs
import msgspec

from coterie.agents.events import agent_events, layer_events, root_events
from coterie.agents.events.agent_events import Event
from coterie.clock import Clock
from coterie.files import Appender

VERSION = 1


_DEFINED = (kind for module in (agent_events, layer_events, root_events) for kind in vars(module).values())
EVENTS = tuple(kind for kind in _DEFINED if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event)
"""All types of events in an event log."""
AnyEvent: Any = Union[EVENTS]  # noqa: UP007 - built from the tuple


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
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            if file.read() not in (b"", b"\n"):
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

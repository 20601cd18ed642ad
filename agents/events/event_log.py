"""Event log: a file of typed events for each agent and for the root (supervisor process), with one event per line.

Events contain only data that no other file records. Messages and token usage are in the transcript (the stored
conversation). A reader of a session merges the events of both files.
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
"""All event classes that processes write to event logs."""
AnyEvent: Any = Union[EVENTS]  # noqa: UP007 - built from the tuple


@attrs.define(eq=False)
class EventLog:
    """Writer of the event log of one agent or of the root (supervisor process). The file has one writer at a time."""

    agent: str
    _clock: Clock
    _appender: Appender

    @classmethod
    def open(cls, path: Path, agent: str, clock: Clock) -> "EventLog":
        """Open or create the log *path*; add a newline if a crash left the last line unfinished. Raises `OSError`."""
        appender = Appender.open(path)
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            if file.read() not in (b"", b"\n"):
                appender.append(b"\n")
        return cls(agent, clock, appender)

    def emit(self, event: Event) -> None:
        """Append *event* to the file, with the time and the agent's name, in one write. Raises `OSError`."""
        self._appender.append(write_event(event, self.agent, self._clock.now()))

    def close(self) -> None:
        """Close the file. `emit` must not be called afterwards."""
        self._appender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_event(event: Event, agent: str, at: float) -> bytes:
    """Encode *event* as one JSON line: format version, time *at*, name of *agent*, then the members of the event."""
    start = msgspec.json.encode({"v": VERSION, "at": at, "agent": agent})
    return start[:-1] + b"," + msgspec.json.encode(event)[1:] + b"\n"


def discard_event(_event: Event) -> None:
    """Do nothing: the function that receives the events of an agent without an event log."""

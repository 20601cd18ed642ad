"""Removals from an agent's context by its layers, read from its event log."""

import heapq
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import attrs

from coterie.agents.events.event_reader import ReplyRecorded
from coterie.agents.events.layer_events import BreakerTripped, Compacted, NotesUpdated, ResultsCleared, ResultsStored
from coterie.orchestrator.events.event_sources import EventSource, SourcedEvent, open_sources

LayerEvent = ResultsStored | ResultsCleared | NotesUpdated | Compacted | BreakerTripped


@attrs.frozen(kw_only=True)
class ContextRemoval:
    """A layer has done something."""

    at: float
    turn: int
    """The number of the next model call."""
    line: int
    """The last of the transcript by then: what left stands on it or before it."""
    event: LayerEvent


def read_context_removals(directory: Path) -> Iterator[ContextRemoval]:
    """What the layers have done for the agent whose *directory* this is. Blocks on the disk; raises `OSError`."""
    told, recorded = open_sources(directory, session=directory.name)
    turn, line = 1, 0
    for arrival in heapq.merge(_arrivals(recorded), _arrivals(told), key=attrgetter("order")):
        match arrival.event.event:
            case ReplyRecorded() as reply:
                turn, line = reply.turn + reply.is_taken, arrival.line.number
            case ResultsStored() | ResultsCleared() | NotesUpdated() | Compacted() | BreakerTripped() as event:
                yield ContextRemoval(at=arrival.event.at, turn=turn, line=line, event=event)
            case _ if arrival.line.number and arrival.event.kind in ("message", "epoch"):
                line = arrival.line.number


def _arrivals(source: EventSource) -> Iterator[SourcedEvent]:
    for arrival in source.read(source.lines.size()):
        source.mark_read(arrival)
        yield arrival

"""Actions of the layers on an agent's context, read from its event log and transcript."""

import heapq
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import attrs

from coterie.agents.events.event_reader import ReplyRecorded
from coterie.agents.events.layer_events import BreakerTripped, Compacted, NotesUpdated, ResultsCleared, ResultsStored
from coterie.orchestrator.events.event_sources import open_sources

LayerEvent = ResultsStored | ResultsCleared | NotesUpdated | Compacted | BreakerTripped


@attrs.frozen(kw_only=True)
class ContextRemoval:
    """One action of a layer, with its position in the transcript."""

    at: float
    turn: int
    """Number of the next model call."""
    line: int
    """Number of the last transcript line at that time; the removed content is on this line or an earlier one."""
    event: LayerEvent


def read_context_removals(directory: Path) -> Iterator[ContextRemoval]:
    """Yield the actions of the layers of the agent with this *directory*. Blocks on the disk; raises `OSError`."""
    log, transcript = (source.read_all() for source in open_sources(directory, session=directory.name))
    turn, line = 1, 0
    for sourced in heapq.merge(transcript, log, key=attrgetter("order")):
        match sourced.event.event:
            case ReplyRecorded() as reply:
                turn, line = reply.turn + reply.is_taken, sourced.line.number
            case ResultsStored() | ResultsCleared() | NotesUpdated() | Compacted() | BreakerTripped() as event:
                yield ContextRemoval(at=sourced.event.at, turn=turn, line=line, event=event)
            case _ if sourced.line.number and sourced.event.kind in ("message", "epoch"):
                line = sourced.line.number

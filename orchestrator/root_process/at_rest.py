"""Compacting an agent of a session that does not run: it is taken up for that alone, and ends without a turn."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from coterie.agents.control.compaction_words import Compaction, NotCompacted
from coterie.agents.control.words import Unable
from coterie.agents.errors import ControlLost
from coterie.agents.events import Compacted, Event, LayerFailed
from coterie.orchestrator.events.observed import read_told
from coterie.orchestrator.events.sources import EVENT_LOG
from coterie.orchestrator.root_process.assignment import Assignment
from coterie.orchestrator.root_process.calling import Host, open_root_process
from coterie.orchestrator.root_process.words import Over
from coterie.orchestrator.session import Session


async def compact_at_rest(assignment: Assignment) -> Compaction | NotCompacted:
    """Do the compaction that is *assignment*, and wait until nothing of the session runs any more.

    Cancellation ends it, with the conversation as it was or compacted. Enter it on the main thread. Raises `OSError`.
    """
    assert assignment.session is not None, "there is nothing to compact in a new one"
    log = Session.find(assignment.session).directory / "agents" / assignment.name / EVENT_LOG
    size = log.stat().st_size if log.exists() else 0
    async with open_root_process(assignment) as host:
        word = await _last_word(host)
    if isinstance(word, Unable):
        return NotCompacted(call=0, reason=word.reason, is_for_user=word.is_for_user)
    told = list(_told_since(log, size))
    compacted = [event for event in told if isinstance(event, Compacted)]
    if compacted:
        return Compaction.of(0, compacted[-1])
    failures = [event.reason for event in told if isinstance(event, LayerFailed)]
    return NotCompacted(call=0, reason=" ".join(failures[-1:]) or _why(word))


async def _last_word(host: Host) -> Over | Unable | None:
    """What the root has to say in the end; None if it ended without a word."""
    with contextlib.suppress(ControlLost):
        while (word := await host.hear()) is not None:
            if isinstance(word, Over | Unable):
                return word
    return None


def _why(word: Over | None) -> str:
    return word.reason if word is not None and word.reason else "its process has ended"


def _told_since(log: Path, size: int) -> Iterator[Event]:
    """The events behind the first *size* bytes of a log."""
    with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(size)
        for line in file.read().splitlines():
            with contextlib.suppress(ValueError):  # blank, or torn
                if (event := read_told(line, session="").event) is not None:
                    yield event

"""A chore for an agent of a session that does not run: it is taken up for that alone, and ends without a turn."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import attrs

from coterie.agents.control.compaction_words import Compaction, NotCompacted
from coterie.agents.control.words import Unable
from coterie.agents.errors import ControlLost
from coterie.agents.events import Compacted, Event, LayerFailed
from coterie.orchestrator.events.observed import read_told
from coterie.orchestrator.events.sources import EVENT_LOG
from coterie.orchestrator.root_process.assignment import Assignment
from coterie.orchestrator.root_process.calling import Host, open_root_process
from coterie.orchestrator.root_process.words import Opened, Over
from coterie.orchestrator.session import Session

ENDED = "its process has ended"


@attrs.frozen(kw_only=True)
class Done:
    """What became of a chore."""

    session: str | None
    """The id of the session; None if none could be made."""
    told: tuple[Event, ...] = ()
    """All that the agent told meanwhile."""
    failure: str | None = None
    """Why it could not be done to the end, or not be begun."""
    is_for_user: bool = False
    """Whether what was asked for makes no sense."""

    def why_not(self) -> str:
        """Why what was wanted is not among what was told."""
        failures = [event.reason for event in self.told if isinstance(event, LayerFailed)]
        return self.failure or " ".join(failures[-1:]) or ENDED


async def do_at_rest(assignment: Assignment) -> Done:
    """Do the chore that is *assignment*, in its session or a new one, and wait until nothing of that runs any more.

    Cancellation ends it, and what was done by then stays done. Enter it on the main thread. Raises `ConfigInvalid` for
    a session that is not there, and `OSError`.
    """
    assert assignment.chore is not None, "a task takes turns"
    size = 0 if assignment.session is None else _size(_log_of(assignment.session, assignment.name))
    async with open_root_process(assignment) as host:
        opened, last = await _words(host)
    session = assignment.session or opened
    told = () if session is None else tuple(_told_since(_log_of(session, assignment.name), size))
    done = Done(session=session, told=told)
    match last:
        case Unable():
            return attrs.evolve(done, failure=last.reason, is_for_user=last.is_for_user)
        case Over(is_done=True):
            return done
        case _:
            return attrs.evolve(done, failure=(last and last.reason) or ENDED)


async def compact_at_rest(assignment: Assignment) -> Compaction | NotCompacted:
    """Do the compaction that is *assignment*, as `do_at_rest` does it.

    Cancellation leaves the conversation as it was, or compacted.
    """
    assert assignment.session is not None, "there is nothing to compact in a new one"
    done = await do_at_rest(assignment)
    compacted = [event for event in done.told if isinstance(event, Compacted)]
    if compacted and not done.is_for_user:
        return Compaction.of(0, compacted[-1])
    return NotCompacted(call=0, reason=done.why_not(), is_for_user=done.is_for_user)


async def _words(host: Host) -> tuple[str | None, Over | Unable | None]:
    """The session that the root opened, and what it has to say in the end; None for what it did not say."""
    opened: str | None = None
    with contextlib.suppress(ControlLost):
        while (word := await host.hear()) is not None:
            if isinstance(word, Opened):
                opened = word.session
            elif isinstance(word, Over | Unable):
                return opened, word
    return opened, None


def _log_of(session: str, name: str) -> Path:
    return Session.find(session).directory / "agents" / name / EVENT_LOG


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _told_since(log: Path, size: int) -> Iterator[Event]:
    """The events behind the first *size* bytes of a log."""
    with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(size)
        for line in file.read().splitlines():
            with contextlib.suppress(ValueError):  # blank, or torn
                if (event := read_told(line, session="").event) is not None:
                    yield event

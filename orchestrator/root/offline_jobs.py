"""Jobs for an agent of a session that is not running, done by a root started for that job alone."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import attrs

from coterie.agents.errors import ControlLost
from coterie.agents.events.agent_events import Event
from coterie.agents.events.event_reader import parse_event
from coterie.agents.events.layer_events import Compacted, LayerFailed
from coterie.agents.root_link.job_messages import CompactionDone, NotCompacted
from coterie.agents.root_link.messages import RunFailed
from coterie.orchestrator.control.root_client import RootClient, open_root_client
from coterie.orchestrator.control.root_protocol import SessionEnded, SessionOpened
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.session_directory import EVENT_LOG, SessionDirectory

ENDED = "its process has ended"


@attrs.frozen(kw_only=True)
class JobResult:
    """What became of a chore."""

    session: str | None
    """The id of the session; None if none could be made."""
    events: tuple[Event, ...] = ()
    """All that the agent told meanwhile."""
    failure: str | None = None
    """Why it could not be done to the end, or not be begun."""
    is_for_user: bool = False
    """Whether what was asked for makes no sense."""

    def failure_reason(self) -> str:
        """Why what was wanted is not among what was told."""
        failures = [event.reason for event in self.events if isinstance(event, LayerFailed)]
        return self.failure or " ".join(failures[-1:]) or ENDED


async def run_offline_job(assignment: SessionRequest) -> JobResult:
    """Do the chore that is *assignment*, in its session or a new one, and wait until nothing of that runs any more.

    Cancellation ends it, and what was done by then stays done. Enter it on the main thread. Raises `ConfigInvalid` for
    a session that is not there, and `OSError`.
    """
    assert assignment.chore is not None, "a task takes turns"
    size = 0 if assignment.session is None else _size(_log_of(assignment.session, assignment.name))
    async with open_root_client(assignment) as host:
        opened, last = await _receive_result(host)
    session = assignment.session or opened
    told = () if session is None else tuple(_events_since(_log_of(session, assignment.name), size))
    done = JobResult(session=session, events=told)
    match last:
        case RunFailed():
            return attrs.evolve(done, failure=last.reason, is_for_user=last.is_for_user)
        case SessionEnded(is_done=True):
            return done
        case _:
            return attrs.evolve(done, failure=(last and last.reason) or ENDED)


async def compact_offline(assignment: SessionRequest) -> CompactionDone | NotCompacted:
    """Do the compaction that is *assignment*, as `run_offline_job` does it.

    Cancellation leaves the conversation as it was, or compacted.
    """
    assert assignment.session is not None, "there is nothing to compact in a new one"
    done = await run_offline_job(assignment)
    compacted = [event for event in done.events if isinstance(event, Compacted)]
    if compacted and not done.is_for_user:
        return CompactionDone.of(compacted[-1])
    return NotCompacted(reason=done.failure_reason(), is_for_user=done.is_for_user)


async def _receive_result(host: RootClient) -> tuple[str | None, SessionEnded | RunFailed | None]:
    """The session that the root opened, and what it has to say in the end; None for what it did not say."""
    opened: str | None = None
    with contextlib.suppress(ControlLost):
        while (word := await host.receive()) is not None:
            if isinstance(word, SessionOpened):
                opened = word.session
            elif isinstance(word, SessionEnded | RunFailed):
                return opened, word
    return opened, None


def _log_of(session: str, name: str) -> Path:
    return SessionDirectory.find(session).directory / "agents" / name / EVENT_LOG


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _events_since(log: Path, size: int) -> Iterator[Event]:
    """The events behind the first *size* bytes of a log."""
    with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(size)
        for line in file.read().splitlines():
            with contextlib.suppress(ValueError):  # blank, or torn
                if (event := parse_event(line, session="").event) is not None:
                    yield event

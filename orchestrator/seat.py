"""What an agent is to do, which start of it does it, and the files that it alone writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from coterie.agents.approvals.policy import PlanPolicy
from coterie.agents.conversation import TranscriptWriter
from coterie.agents.definitions import Definition
from coterie.agents.errors import ConfigInvalid, TranscriptCorrupt
from coterie.agents.events import EventLog
from coterie.agents.models import Model
from coterie.agents.spawning import Spawned
from coterie.clock import Clock
from coterie.orchestrator.events.sources import EVENT_LOG, TRANSCRIPT
from coterie.orchestrator.session import COORDINATOR, Session
from coterie.orchestrator.settings import Settings
from coterie.orchestrator.teams.team import Team


@attrs.frozen(kw_only=True)
class Work:
    """A task and how it is to be done."""

    task: str
    """Where a conversation has begun, what to say next; empty to go on where it stopped."""
    project: Path
    model: Model
    settings: Settings
    kind: Definition | None = None
    """What kind of agent does it."""
    is_bare: bool = False
    """Without instruction files."""
    is_embedded: bool = False
    """Whether the embedded server plays the model."""
    fork: Path | None = None
    """The file of the point that a fork begins at; its task is then its directive."""
    above: tuple[Settings, ...] = ()
    """Those of the agents that this one was started by, the nearest first: it may do no more than they."""
    stays: bool = False
    """Whether it waits for messages when the task is done; without a task, from the beginning."""
    team: Team | None = None
    """Whom it leads from the beginning."""
    lead: str | None = None
    """Whose teammate it is; None for one that reports and ends, and for the lead of a session."""
    colleagues: tuple[str, ...] = ()
    """Who else is in its team from the beginning."""
    at_work: tuple[Spawned, ...] = ()
    """Whom an earlier start of it has started, and who may not have reported yet."""
    has_teammate: bool = False
    """Whether an earlier start of it has started one who stays."""
    plan: PlanPolicy | None = None
    """Who must approve its plan before it may do more than read; None lets it begin."""
    is_approved: bool = False
    """Whether its plan was approved, when an earlier start had submitted it."""

    @property
    def is_in_team(self) -> bool:
        """Whether others work with it from the beginning: who started it, or those it is there to lead."""
        return bool(self.above) or self.leads

    @property
    def leads(self) -> bool:
        """Whether it is there for others to work for it, so that it waits until they have nothing left to do."""
        is_coordinator = self.kind is not None and self.kind.name == COORDINATOR
        return self.team is not None or is_coordinator

    @property
    def has_instructions(self) -> bool:
        """Whether instruction files are read."""
        return self.settings.instructions.enabled and not self.is_bare


@attrs.frozen(kw_only=True)
class Seat:
    """One start of one agent, with the files that it alone writes."""

    session: Session
    incarnation: int
    transcript: TranscriptWriter
    log: EventLog
    clock: Clock
    name: str

    @property
    def directory(self) -> Path:
        """The agent's own."""
        return self.session.agent_directory(self.name)


@contextmanager
def open_seat(session: Session, clock: Clock, *, name: str, incarnation: int) -> Iterator[Seat]:
    """Open the files of the agent *name*. Raises `ConfigInvalid` for a damaged transcript, and `OSError`."""
    directory = session.agent_directory(name)
    with (
        _open_transcript(directory / TRANSCRIPT, clock) as transcript,
        EventLog.open(directory / EVENT_LOG, name, clock) as log,
    ):
        yield Seat(session=session, name=name, incarnation=incarnation, transcript=transcript, log=log, clock=clock)


def _open_transcript(path: Path, clock: Clock) -> TranscriptWriter:
    try:
        return TranscriptWriter.open(path, clock)
    except TranscriptCorrupt as exc:
        raise ConfigInvalid(str(path), f"is damaged, {exc}; nothing was changed") from exc

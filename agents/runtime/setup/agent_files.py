"""Files that one incarnation of an agent alone writes, and its resolved work."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.definitions.team_definition import TeamDefinition
from coterie.agents.errors import TranscriptCorrupt
from coterie.agents.events.event_log import EventLog
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.loop.model.catalog import Model
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.root_link.spawn_request import Spawned
from coterie.agents.settings import Settings
from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.process_identity import AGENT_VARIABLE, agent_tag
from coterie.session_directory import COORDINATOR, EVENT_LOG, TRANSCRIPT, SessionDirectory


@attrs.frozen(kw_only=True)
class AgentWork:
    """A task and how it is to be done."""

    task: str
    """Where a conversation has begun, what to say next; empty to go on where it stopped."""
    project: Path
    model: Model
    settings: Settings
    definition: AgentDefinition | None = None
    """What kind of agent does it."""
    is_bare: bool = False
    """Without instruction files."""
    is_embedded: bool = False
    """Whether the embedded server plays the model."""
    fork: Path | None = None
    """The file of the point that a fork begins at; its task is then its directive."""
    parent_settings: tuple[Settings, ...] = ()
    """Those of the agents that this one was started by, the nearest first: it may do no more than they."""
    is_teammate: bool = False
    """Whether it waits for messages when the task is done; without a task, from the beginning."""
    team: TeamDefinition | None = None
    """Whom it leads from the beginning."""
    lead: str | None = None
    """Whose teammate it is; None for one that reports and ends, and for the lead of a session."""
    teammates: tuple[str, ...] = ()
    """Who else is in its team from the beginning."""
    running_children: tuple[Spawned, ...] = ()
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
        return bool(self.parent_settings) or self.is_lead

    @property
    def is_lead(self) -> bool:
        """Whether it is there for others to work for it, so that it waits until they have nothing left to do."""
        is_coordinator = self.definition is not None and self.definition.name == COORDINATOR
        return self.team is not None or is_coordinator

    @property
    def has_instructions(self) -> bool:
        """Whether instruction files are read."""
        return self.settings.instructions.enabled and not self.is_bare


@attrs.frozen(kw_only=True)
class AgentFiles:
    """One start of one agent, with the files that it alone writes."""

    session: SessionDirectory
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
def open_agent_files(session: SessionDirectory, clock: Clock, *, name: str, incarnation: int) -> Iterator[AgentFiles]:
    """Open the files of the agent *name*. Raises `ConfigInvalid` for a damaged transcript, and `OSError`."""
    directory = session.agent_directory(name)
    with (
        _open_transcript(directory / TRANSCRIPT, clock) as transcript,
        EventLog.open(directory / EVENT_LOG, name, clock) as log,
    ):
        yield AgentFiles(
            session=session, name=name, incarnation=incarnation, transcript=transcript, log=log, clock=clock
        )


def _open_transcript(path: Path, clock: Clock) -> TranscriptWriter:
    try:
        return TranscriptWriter.open(path, clock)
    except TranscriptCorrupt as exc:
        raise ConfigInvalid(str(path), f"is damaged, {exc}; nothing was changed") from exc


SCRATCH_VARIABLE = "COTERIE_SCRATCH"
"""Tells commands where the directory is that all agents of the session share."""


def agent_environment(seat: AgentFiles) -> dict[str, str]:
    """What every program that is started for the agent of *seat* finds in its environment."""
    # What belongs to an agent is found by it, also where the agent shares its process with others.
    tag = agent_tag(seat.name, seat.incarnation)
    return {AGENT_VARIABLE: tag, SCRATCH_VARIABLE: str(seat.session.scratch)}

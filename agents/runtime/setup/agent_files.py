"""Files that one incarnation of an agent writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from coterie.agents.errors import TranscriptCorrupt
from coterie.agents.events.event_log import EventLog
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.process_identity import AGENT_VARIABLE, agent_tag
from coterie.session_directory import EVENT_LOG, TRANSCRIPT, SessionDirectory


@attrs.frozen(kw_only=True)
class AgentFiles:
    """Files of one incarnation of an agent, which no other process writes."""

    session: SessionDirectory
    incarnation: int
    transcript: TranscriptWriter
    log: EventLog
    clock: Clock
    name: str

    @property
    def directory(self) -> Path:
        """Directory of the agent in the session."""
        return self.session.agent_directory(self.name)


@contextmanager
def open_agent_files(session: SessionDirectory, clock: Clock, *, name: str, incarnation: int) -> Iterator[AgentFiles]:
    """Open the files of the agent *name*. Raises `ConfigInvalid` for a damaged transcript, and `OSError`."""
    directory = session.agent_directory(name)
    try:
        transcript = TranscriptWriter.open(directory / TRANSCRIPT, clock)
    except TranscriptCorrupt as exc:
        raise ConfigInvalid(str(directory / TRANSCRIPT), f"is damaged: {exc}; nothing was changed") from exc
    with (
        transcript,
        EventLog.open(directory / EVENT_LOG, name, clock) as log,
    ):
        yield AgentFiles(
            session=session, name=name, incarnation=incarnation, transcript=transcript, log=log, clock=clock
        )


SCRATCH_VARIABLE = "COTERIE_SCRATCH"
"""Environment variable with the directory that all agents of the session share."""


def agent_environment(files: AgentFiles) -> dict[str, str]:
    """Return the environment variables of every program that the agent of *files* starts."""
    # The tag also identifies the agent's programs if several agents share the process.
    tag = agent_tag(files.name, files.incarnation)
    return {AGENT_VARIABLE: tag, SCRATCH_VARIABLE: str(files.session.scratch)}

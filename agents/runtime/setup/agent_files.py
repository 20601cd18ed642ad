"""Files that one incarnation (start) of an agent writes: its transcript (stored conversation) and its event log."""

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
    """Open transcript and event log of one incarnation (start) of an agent; no other process writes them."""

    session: SessionDirectory
    incarnation: int
    transcript: TranscriptWriter
    log: EventLog
    clock: Clock
    name: str

    @property
    def directory(self) -> Path:
        """Directory with the files of the agent, below the directory of the session."""
        return self.session.agent_directory(self.name)


@contextmanager
def open_agent_files(session: SessionDirectory, clock: Clock, *, name: str, incarnation: int) -> Iterator[AgentFiles]:
    """Open transcript and event log of agent *name* for the block. Raises `OSError`, and `ConfigInvalid` if damaged."""
    directory = session.agent_directory(name)
    try:
        transcript = TranscriptWriter.open(directory / TRANSCRIPT, clock)
    except TranscriptCorrupt as exc:
        raise ConfigInvalid(str(directory / TRANSCRIPT), f"the file is damaged; start a new session: {exc}") from exc
    with (
        transcript,
        EventLog.open(directory / EVENT_LOG, name, clock) as log,
    ):
        yield AgentFiles(
            session=session, name=name, incarnation=incarnation, transcript=transcript, log=log, clock=clock
        )


SCRATCH_VARIABLE = "COTERIE_SCRATCH"
"""Environment variable with the path of a directory in which all agents of the session may share files."""


def agent_environment(files: AgentFiles) -> dict[str, str]:
    """Return variables for programs that the agent starts: its tag (`name#incarnation`) and the shared directory."""
    # The tag also identifies the agent's programs if several agents share the process.
    tag = agent_tag(files.name, files.incarnation)
    return {AGENT_VARIABLE: tag, SCRATCH_VARIABLE: str(files.session.scratch)}

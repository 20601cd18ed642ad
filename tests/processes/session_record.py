"""Record of a session on disk, and its processes."""

from pathlib import Path
from typing import Any

import psutil

from coterie.agents.events.agent_events import Event
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.transcript import LoadedTranscript, load_transcript
from coterie.memory.compaction.summary_text import block_text
from coterie.orchestrator.events.session_reader import read_session
from coterie.process_identity import SESSION_VARIABLE
from coterie.session_directory import MAIN, TRANSCRIPT, SessionDirectory


def loaded(session: SessionDirectory, agent: str = MAIN) -> LoadedTranscript:
    return load_transcript(session.directory / "agents" / agent / TRANSCRIPT)


def conversation(session: SessionDirectory, agent: str = MAIN) -> Conversation:
    found = loaded(session, agent).conversation
    assert found is not None
    return found


def texts(session: SessionDirectory, agent: str = MAIN) -> list[str]:
    """Return the text of each block in the conversation of *agent*, including results of its calls."""
    return [block_text(block) for message in conversation(session, agent).messages for block in message.blocks]


def events(session: SessionDirectory, kind: type[Event]) -> list[Any]:
    return [observed.event for observed in read_session(session.directory) if isinstance(observed.event, kind)]


def processes_of(session: SessionDirectory) -> list[psutil.Process]:
    """Return the processes of *session*, without zombies."""
    mark = f"{SESSION_VARIABLE}={session.id}".encode()
    return [process for process in psutil.process_iter() if mark in _environment(process.pid)]


def has_no_processes(session: SessionDirectory) -> bool:
    """True if no process of *session* is left."""
    return not processes_of(session)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""

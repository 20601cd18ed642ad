"""Offline jobs (compaction, memory extraction, tidying of memories), which commands run in a stopped or new session."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import attrs

from coterie.agents.errors import ControlLost, TranscriptCorrupt
from coterie.agents.events.agent_events import Event
from coterie.agents.events.event_reader import parse_event
from coterie.agents.events.layer_events import Compacted, LayerFailed
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.root_link.job_messages import CompactionDone, NotCompacted, OfflineJob
from coterie.agents.root_link.messages import RunFailed
from coterie.agents.root_link.spawn_request import FORK
from coterie.orchestrator.cli.output import UsageRefused
from coterie.orchestrator.cli.shared_options import require_model
from coterie.orchestrator.control.launch_client import FinalMessage, RootClient, open_root_client
from coterie.orchestrator.control.requests import SessionEnded, SessionOpened
from coterie.orchestrator.session.overview import read_members
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.orchestrator.settings.settings_loader import load_settings
from coterie.session_directory import EVENT_LOG, MAIN, TRANSCRIPT, SessionDirectory
from coterie.suggestions import did_you_mean


def offline_job_request(session: SessionDirectory, agent: str, job: OfflineJob, script: Path | None) -> SessionRequest:
    """Return the request to start *session* only so that *agent* does *job*; *script* is a file with model replies.

    Raises `ConfigInvalid`, `NoModel` without API key and *script*, and `UsageRefused` if the conversation is unusable.
    """
    model = _model_of(session, agent)
    require_model(script)
    engagement = read_members(session)[agent].engagement if agent in read_members(session) else None
    agent_type = session.agent if agent == MAIN else engagement and engagement.kind
    given = {
        "model": session.model,
        "agent": None if agent_type == FORK else agent_type,
        "sandbox.mode": session.sandbox,
    }
    settings = load_settings(session.project, given, os.environ)
    facts = {"task": "", "model": model, "session": session.id, "name": agent, "chore": job}
    return SessionRequest.prepare(settings, session.project, script, **facts)


def _model_of(session: SessionDirectory, agent: str) -> str:
    """Return the model id in *agent*'s conversation. Raises `UsageRefused` if that is missing or damaged."""
    transcripts = {path.parent.name: path for path in session.directory.glob(f"agents/*/{TRANSCRIPT}")}
    if agent not in transcripts:
        raise UsageRefused(f"session {session.id} has no agent {agent!r}; {did_you_mean(agent, transcripts)}")
    try:
        conversation = load_transcript(transcripts[agent]).conversation
    except TranscriptCorrupt as exc:
        raise UsageRefused(f"transcript {transcripts[agent]} is damaged, {exc}; run `coterie doctor`") from exc
    if conversation is None:
        raise UsageRefused(f"agent {agent!r} of session {session.id} has no conversation yet; resume the session first")
    return conversation.header.model


ENDED = "its process ended without a result; `coterie logs` shows its events"


@attrs.frozen(kw_only=True)
class JobResult:
    """Result of an offline job, such as a compaction: its session, the events of the agent, and the failure if any."""

    session: str | None
    """Id of the session in which the job ran; None if it failed before a new session was created."""
    events: tuple[Event, ...] = ()
    """Events that the agent wrote to its event log during the job."""
    failure: str | None = None
    """Reason why the job could not start or its process failed; None if the process ended normally."""
    is_for_user: bool = False
    """True if the job failed because of an invalid option or file, which the user must correct."""

    def failure_reason(self) -> str:
        """Return `failure`, else the reason of the agent's last `LayerFailed` event, else that there was no result."""
        failures = [event.reason for event in self.events if isinstance(event, LayerFailed)]
        return self.failure or " ".join(failures[-1:]) or ENDED


async def run_offline_job(assignment: SessionRequest) -> JobResult:
    """Run the offline job (such as a compaction) of *assignment* in its session or a new one, and wait for its end.

    Cancellation stops the job, and files that the job has written so far stay. Call it on the main thread. Raises
    `ConfigInvalid` for an unknown session, and `OSError`.
    """
    assert assignment.chore is not None, "a request without a job runs turns"
    size = 0
    if assignment.session is not None and (log := _log_of(assignment.session, assignment.name)).exists():
        size = log.stat().st_size
    async with open_root_client(assignment) as root_client:
        opened, last = await _receive_result(root_client)
    session = assignment.session or opened
    events = () if session is None else tuple(_events_since(_log_of(session, assignment.name), size))
    if isinstance(last, RunFailed):
        return JobResult(session=session, events=events, failure=last.reason, is_for_user=last.is_for_user)
    is_done = last is not None and last.is_done
    return JobResult(session=session, events=events, failure=None if is_done else (last and last.reason) or ENDED)


async def compact_offline(assignment: SessionRequest) -> CompactionDone | NotCompacted:
    """Run the compaction of *assignment* as an offline job; return the sizes before and after, or why it was not done.

    Cancellation leaves the conversation either unchanged or completely compacted.
    """
    assert assignment.session is not None, "a new session has no conversation to compact"
    done = await run_offline_job(assignment)
    compacted = [event for event in done.events if isinstance(event, Compacted)]
    if compacted and not done.is_for_user:
        return CompactionDone.of(compacted[-1])
    return NotCompacted(reason=done.failure_reason(), is_for_user=done.is_for_user)


async def _receive_result(root_client: RootClient) -> tuple[str | None, FinalMessage | None]:
    """Wait for the final message of the root (supervisor process); return session id and message, None if missing."""
    opened: str | None = None
    with contextlib.suppress(ControlLost):
        while (message := await root_client.receive()) is not None:
            if isinstance(message, SessionOpened):
                opened = message.session
            elif isinstance(message, SessionEnded | RunFailed):
                return opened, message
    return opened, None


def _log_of(session: str, name: str) -> Path:
    return SessionDirectory.find(session).directory / "agents" / name / EVENT_LOG


def _events_since(log: Path, size: int) -> Iterator[Event]:
    """Yield the events behind the first *size* bytes of an event log; no invalid lines; nothing if *log* is missing."""
    with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(size)
        for line in file.read().splitlines():
            with contextlib.suppress(ValueError):  # a blank or torn line
                if (event := parse_event(line, session="").event) is not None:
                    yield event

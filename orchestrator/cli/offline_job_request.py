"""Session request that makes an agent of a session that is not running do a job."""

import os
from pathlib import Path

from coterie.agents.errors import TranscriptCorrupt
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.root_link.job_messages import OfflineJob
from coterie.agents.root_link.spawn_request import FORK_TYPE
from coterie.orchestrator.cli.model_access import require_model
from coterie.orchestrator.cli.output import UsageRefused
from coterie.orchestrator.session.overview import read_members
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.orchestrator.settings.settings_loader import apply_definition, load_settings
from coterie.session_directory import MAIN, TRANSCRIPT, SessionDirectory
from coterie.suggestions import did_you_mean


def offline_job_request(
    session: SessionDirectory, agent: str, chore: OfflineJob, script: Path | None
) -> SessionRequest:
    """What makes *agent* of *session* do *chore*, with its own model, or the one that *script* plays.

    Raises `ConfigInvalid`, `NoModel`, and `UsageRefused` for an agent that has no conversation.
    """
    model = _model_of(session, agent)
    require_model(script)
    engagement = read_members(session)[agent].engagement if agent in read_members(session) else None
    kind = session.agent if agent == MAIN else engagement and engagement.kind
    given = {"model": session.model, "agent": None if kind == FORK_TYPE else kind, "sandbox.mode": session.sandbox}
    settings, definition = apply_definition(load_settings(session.project, given, os.environ), session.project)
    return SessionRequest(
        project=session.project,
        task="",
        model=model,
        settings=settings,
        definition=None if definition is None else definition.name,
        session=session.id,
        script=None if script is None else str(script),
        name=agent,
        chore=chore,
    )


def _model_of(session: SessionDirectory, agent: str) -> str:
    """The model that an agent's conversation is with. Raises `UsageRefused` if there is none."""
    transcripts = {path.parent.name: path for path in session.directory.glob(f"agents/*/{TRANSCRIPT}")}
    if agent not in transcripts:
        raise UsageRefused(f"session {session.id} has no agent {agent!r}; {did_you_mean(agent, transcripts)}")
    try:
        conversation = load_transcript(transcripts[agent]).conversation
    except TranscriptCorrupt as exc:
        raise UsageRefused(f"{transcripts[agent]} is damaged, {exc}; nothing was changed") from exc
    if conversation is None:
        raise UsageRefused(f"{agent} of session {session.id} has no conversation yet")
    return conversation.header.model

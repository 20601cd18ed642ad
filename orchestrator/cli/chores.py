"""Commands for sessions that do not run: what a root must be started with to have an agent do a chore."""

import os
from pathlib import Path

from coterie.agents.control.chores import Chore
from coterie.agents.conversation import load_transcript
from coterie.agents.errors import TranscriptCorrupt
from coterie.agents.nearest import suggestion
from coterie.orchestrator.cli.exit_codes import Refused
from coterie.orchestrator.cli.run import need_a_model
from coterie.orchestrator.events.sources import TRANSCRIPT
from coterie.orchestrator.kinds import of_a_kind
from coterie.orchestrator.overview import members_of
from coterie.orchestrator.root_process.assignment import Assignment
from coterie.orchestrator.session import MAIN, Session
from coterie.orchestrator.settings import load_settings
from coterie.orchestrator.tree.ordering import FORK


def chore_for(session: Session, agent: str, chore: Chore, script: Path | None) -> Assignment:
    """What makes *agent* of *session* do *chore*, with its own model, or the one that *script* plays.

    Raises `ConfigInvalid`, `NoModel`, and `Refused` for an agent that has no conversation.
    """
    model = _model_of(session, agent)
    need_a_model(script)
    engagement = members_of(session)[agent].engagement if agent in members_of(session) else None
    kind = session.agent if agent == MAIN else engagement and engagement.kind
    given = {"model": session.model, "agent": None if kind == FORK else kind, "sandbox.mode": session.sandbox}
    settings, definition = of_a_kind(load_settings(session.project, given, os.environ), session.project)
    return Assignment(
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


def _model_of(session: Session, agent: str) -> str:
    """The model that an agent's conversation is with. Raises `Refused` if there is none."""
    transcripts = {path.parent.name: path for path in session.directory.glob(f"agents/*/{TRANSCRIPT}")}
    if agent not in transcripts:
        raise Refused(f"session {session.id} has no agent {agent!r}; {suggestion(agent, transcripts)}")
    try:
        conversation = load_transcript(transcripts[agent]).conversation
    except TranscriptCorrupt as exc:
        raise Refused(f"{transcripts[agent]} is damaged, {exc}; nothing was changed") from exc
    if conversation is None:
        raise Refused(f"{agent} of session {session.id} has no conversation yet")
    return conversation.header.model

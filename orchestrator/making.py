"""An agent is made: from its transcript, from the point it was forked at, or from what it is to do."""

from pathlib import Path

import attrs

from coterie.agents.agent import Agent
from coterie.agents.compaction.step import CompactContext
from coterie.agents.conversation import Conversation
from coterie.agents.conversation.records import WordsRecord
from coterie.agents.forks import ForkPoint, begin_fork, fork_pipeline, fork_workspace
from coterie.agents.layers.mail import with_mail
from coterie.agents.model.client import ModelClient
from coterie.agents.model.request import Identity
from coterie.agents.permissions import Authority
from coterie.agents.pipeline import layered_pipeline
from coterie.agents.sandbox import Sandbox
from coterie.agents.tools.jobs import Jobs
from coterie.agents.tools.tool import Tool, Workspace, WorkspaceChange
from coterie.agents.window import WindowMeter
from coterie.orchestrator.agent_memory import AgentMemory
from coterie.orchestrator.assembly import begin_conversation, layers_of, thresholds_of
from coterie.orchestrator.mailroom import Mailroom
from coterie.orchestrator.seat import Seat, Work
from coterie.orchestrator.tree.remains import AGENT_VARIABLE, agent_tag

SCRATCH_VARIABLE = "COTERIE_SCRATCH"
"""Tells commands where the directory is that all agents of the session share."""


@attrs.frozen(kw_only=True)
class Outfit:
    """What an agent works with."""

    tools: dict[str, Tool]
    authority: Authority
    jobs: Jobs
    compact: CompactContext | None
    """None where its context is not compacted."""
    point: ForkPoint | None
    """Where it was forked from, if it was."""
    memory: AgentMemory
    readable: tuple[Path, ...] = ()
    """Directories that it may read in besides its own."""
    sandbox: Sandbox | None = None
    """The wall around its commands; None for none."""


def make_agent(work: Work, seat: Seat, room: Mailroom, client: ModelClient, outfit: Outfit) -> Agent:
    """The agent as its transcript left it, or else as its fork point or its work says."""
    tools, point = outfit.tools, outfit.point
    workspace, meter = (
        _workspace(work.project, seat, outfit),
        WindowMeter(thresholds_of(work.settings, work.model)),
    )
    conversation = seat.transcript.loaded.conversation
    is_fresh = conversation is None
    if conversation is None:
        conversation = _begin(work, outfit)
    layers = layers_of(work.settings, conversation.header, tools)
    pipeline = with_mail(layered_pipeline(layers, tools, seat.directory, outfit.compact), room.mail)
    words: list[str] = []
    if point is not None and is_fresh:
        point.fill(meter)
        fork_workspace(point, workspace)
        words = [*point.words, work.task]
        seat.transcript.record(conversation, WordsRecord(texts=words))
    agent = Agent(
        identity=Identity(agent=seat.name, incarnation=seat.incarnation),
        model=work.model,
        client=client,
        conversation=conversation,
        transcript=seat.transcript,
        tools=tools,
        workspace=workspace,
        denial=outfit.authority.denial,
        meter=meter,
        pipeline=pipeline if point is None else fork_pipeline(point, pipeline),
        clock=seat.clock,
        tell=seat.log.tell,
        durability=work.settings.transcript.fsync,
        fork_of=None if point is None else point.parent,
        inherited=0 if point is None else len(point.prefix),
        words=words,
    )
    outfit.memory.agent = agent
    return agent


def commands_are_told(seat: Seat) -> dict[str, str]:
    """What every program that is started for the agent of *seat* finds in its environment."""
    # What belongs to an agent is found by it, also where the agent shares its process with others.
    tag = agent_tag(seat.name, seat.incarnation)
    return {AGENT_VARIABLE: tag, SCRATCH_VARIABLE: str(seat.session.scratch)}


def _begin(work: Work, outfit: Outfit) -> Conversation:
    if outfit.point is not None:
        return begin_fork(outfit.point, work.task)
    return begin_conversation(
        work.settings, work.model, work.kind, outfit.tools, outfit.memory.manual, is_embedded=work.is_embedded
    )


def _workspace(root: Path, seat: Seat, outfit: Outfit) -> Workspace:
    workspace = Workspace(
        root=root,
        scratch=seat.directory,
        jobs=outfit.jobs,
        environment=commands_are_told(seat),
        memory=outfit.memory.opened(),
        shared=seat.session.scratch,
        readable=outfit.readable,
        sandbox=outfit.sandbox,
    )
    if outfit.point is not None:
        workspace.skills.restore(outfit.point.skills)
    for state in seat.transcript.loaded.states:
        workspace.restore(WorkspaceChange(seen=state.seen, directory=state.directory, skills=state.skills))
    return workspace

"""Setup of the layers of an agent: session notes, compaction, recall, extraction, dreaming and progress."""

from collections.abc import Sequence
from functools import partial

import attrs
import trio

from coterie.agents.events.event_reader import last_agent_changes
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.hooks.lifecycle_hooks import CompactionHook
from coterie.agents.layers.layer3_notes_update import NotesWriter, load_writer
from coterie.agents.layers.layer3_session_notes import SessionNotesLayer
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.layers.layer4_compaction.on_demand import OnDemandCompaction
from coterie.agents.layers.layer4_compaction.pinned_context import MailSection, PinnedSection, TaskSection, TeamSection
from coterie.agents.layers.layer5_extraction import Extraction
from coterie.agents.layers.layer6_dreaming.dream_sessions import recent_sessions
from coterie.agents.layers.layer6_dreaming.scheduler import DreamScheduler
from coterie.agents.layers.progress.summarizer import LAYER, ProgressSummarizer, TimeoutGateway
from coterie.agents.layers.prompt_cache.break_detection import ForkSharingCheck
from coterie.agents.layers.prompt_cache.keepalive import CacheKeepalive
from coterie.agents.layers.recall_layer import MemoryRecall
from coterie.agents.loop.agent import Agent, Pipeline
from coterie.agents.loop.forks.fork_point import ForkPoint
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.gateway import Gateway
from coterie.agents.loop.pipeline import PipelineRole, Steps, arrange, context_steps, disabled_settings
from coterie.agents.mcp.tool_list_file import McpToolList, load_tool_list
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.root_link.root_connection import RootConnection
from coterie.agents.runtime.setup.agent_files import AgentFiles, AgentWork
from coterie.agents.runtime.setup.agent_mail import AgentMail
from coterie.agents.runtime.setup.context_texts import context_text
from coterie.agents.runtime.setup.hook_setup import AgentHooks
from coterie.agents.runtime.setup.memory_setup import AgentMemory
from coterie.agents.runtime.setup.skill_setup import AgentSkills
from coterie.agents.sandbox.sandbox import Sandbox
from coterie.agents.tools.tool import Tool
from coterie.agents.tools.workspace.background_jobs import BackgroundJobs
from coterie.errors import ConfigInvalid
from coterie.mailbox.tasks.task_list import TaskList
from coterie.memory.instructions.loader import read_instructions
from coterie.memory.store.memory_store import MemoryStore
from coterie.session_directory import MAIN

ADMISSION_TIMEOUT = 5.0
"""Seconds that a summary waits at the gateway; a longer wait means a rate limit, or calls that are worth more."""
MIN_INTERVAL = 0.1
"""Seconds between two summaries, whatever the settings say."""


@attrs.frozen(kw_only=True)
class AgentParts:
    """Everything that one agent is built from: loaded from disk, or opened for it."""

    tools: dict[str, Tool]
    authority: Authorizer
    jobs: BackgroundJobs
    point: ForkPoint | None
    """The fork point that it begins with; None if it is no fork."""
    memory: AgentMemory
    skills: AgentSkills
    hooks: AgentHooks
    pinned_sections: Sequence[PinnedSection]
    """State that survives a summary."""
    notes_writer: NotesWriter | None
    """None where layer 3 is off."""
    sandbox: Sandbox | None
    """None if its commands are not confined."""


def pinned_sections(seat: AgentFiles, room: AgentMail, tasks: TaskList) -> Sequence[PinnedSection]:
    """The state of the agent of *seat* that survives a summary."""
    roster = room.router.roster
    return (
        TeamSection(roster, partial(last_agent_changes, seat.session)),
        TaskSection(tasks),
        MailSection(roster, room.messaging, room.sender),
    )


def load_notes_writer(work: AgentWork, seat: AgentFiles, pinned: Sequence[PinnedSection]) -> NotesWriter | None:
    """The writer of the session notes of the agent of *seat*; None where layer 3 is off.

    Blocks on the disk. Raises `ConfigInvalid` for a template or a prompt that cannot be used.
    """
    settings = work.settings.layers.notes
    if not settings.enabled:
        return None
    return load_writer(seat.name, work.project, seat.directory, settings, pinned)


async def read_context(work: AgentWork, seat: AgentFiles, memory: AgentMemory, skills: AgentSkills) -> str:
    """What the agent is told before its task, with instruction files and the index of its memory as they are now.

    Raises `ConfigInvalid`.
    """
    return await trio.to_thread.run_sync(_context_sync, work, seat, memory, skills)


def _context_sync(work: AgentWork, seat: AgentFiles, memory: AgentMemory, skills: AgentSkills) -> str:
    instructions = read_instructions(work.project) if work.has_instructions else None
    servers = (load_tool_list(seat.session.directory) or McpToolList()).to_text()
    return context_text(work.project, seat.clock, instructions, memory.index_text(), skills.listing, servers)


def _is_on(enabled: bool | None, work: AgentWork) -> bool:
    """True if a layer runs by itself.

    By default none does with the embedded server: a script that does not expect the calls has no reply for them.
    """
    return not work.is_embedded if enabled is None else enabled


def build_progress(agent: Agent, work: AgentWork, gate: Gateway) -> ProgressSummarizer | None:
    """Summaries of *agent* for the user; None for the lead, whose replies the user reads.

    They pass *gate* only if it admits them soon. A model that does not exist is an event.
    """
    settings = work.settings.progress
    if agent.identity.agent == MAIN or not _is_on(settings.enabled, work):
        return None
    try:
        model = known_models().get(settings.model)
    except ConfigInvalid as exc:
        agent.emit(LayerFailed(layer=LAYER, reason=str(exc)))
        return None
    client = agent.client.with_gateway(TimeoutGateway(gate=gate, patience=ADMISSION_TIMEOUT))
    return ProgressSummarizer.build(agent, client, model, every=max(MIN_INTERVAL, settings.every))


@attrs.define(eq=False, kw_only=True)
class PipelineBuilder:
    """Builds the steps of one agent and arranges them; an argument of `Agent`."""

    work: AgentWork
    files: AgentFiles
    mail: AgentMail
    root: RootConnection
    parts: AgentParts
    steps: Steps = attrs.field(factory=Steps, init=False)
    """Set when the pipeline is built."""

    def __call__(self, agent: Agent) -> Pipeline:
        """The pipeline of *agent*, which is complete but for it."""
        self.steps = self._build(agent)
        role: PipelineRole = "agent" if self.parts.point is None else "fork"
        disabled = disabled_settings(self.work.settings, agent.conversation.header, is_embedded=self.work.is_embedded)
        return arrange(self.steps, disabled, role)

    def _build(self, agent: Agent) -> Steps:
        parts, hooks = self.parts, self.parts.hooks
        notes, compaction_hook = self._notes(agent), hooks.compaction_hook()
        compaction = self._compaction(notes, compaction_hook)
        return attrs.evolve(
            context_steps(self.work.settings.layers, parts.tools, self.files.directory, compaction),
            hook_messages=hooks.messages if hooks.has_hooks else None,
            stop_hook=hooks.stop_hook(lambda: bool(self.mail.messaging.shutdown.requests)),
            compaction_hook=compaction_hook,
            messaging=self.mail.messaging,
            session_notes=notes,
            on_demand_compaction=OnDemandCompaction(compaction),
            extraction=self._extraction(agent),
            dreaming=self._dreaming(agent),
            recall=self._recall(agent),
            keepalive=CacheKeepalive(agent),
            fork_sharing=None if parts.point is None else ForkSharingCheck(parts.point),
            progress=build_progress(agent, self.work, self.root.gate),
        )

    def _notes(self, agent: Agent) -> SessionNotesLayer | None:
        writer, compaction = self.parts.notes_writer, self.work.settings.layers.compaction
        if writer is None:
            return None
        used_by = compaction if compaction.enabled and compaction.by_notes else None
        return SessionNotesLayer.build(agent, writer, compaction=used_by, is_teammate=self.work.is_teammate)

    def _compaction(self, notes: SessionNotesLayer | None, hook: CompactionHook | None) -> CompactionStep | None:
        settings, parts = self.work.settings.layers.compaction, self.parts
        if not settings.enabled:
            return None
        return CompactionStep(
            settings=settings,
            pinned_sections=parts.pinned_sections,
            context=partial(read_context, self.work, self.files, parts.memory, parts.skills),
            mail=self.mail.messaging,
            notes=notes,
            hook=hook,
        )

    def _recall(self, agent: Agent) -> MemoryRecall | None:
        settings, stores = self.work.settings.memory.recall, self.parts.memory.stores
        if not (stores and settings.enabled):
            return None
        by = settings.by or ("local" if self.work.is_embedded else "model")
        return MemoryRecall.build(agent, stores, settings, by)

    def _extraction(self, agent: Agent) -> Extraction | None:
        settings, memory = self.work.settings.layers.extraction, self.parts.memory
        if (store := self._project_memory) is None:
            return None
        return Extraction.build(agent, store, settings, memory.author, authority=self.parts.authority)

    def _dreaming(self, agent: Agent) -> DreamScheduler | None:
        memory, session = self.parts.memory, self.files.session
        if (store := self._project_memory) is None:
            return None
        sessions = partial(recent_sessions, session.directory.parent, self.files.clock)
        settings = self.work.settings.layers.dreaming
        return DreamScheduler.build(agent, store, sessions, settings, memory.author, authority=self.parts.authority)

    @property
    def _project_memory(self) -> MemoryStore | None:
        """The store that extraction and dreaming write; None for all agents but the lead."""
        return self.parts.memory.shared if self.files.name == MAIN else None

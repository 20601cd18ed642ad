"""Setup of the pipeline steps of an agent that keep its context small, write its memory and report its progress."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

import attrs
import trio

from coterie.agents.events.event_reader import last_agent_changes
from coterie.agents.hooks.lifecycle_hooks import CompactionHook
from coterie.agents.layers.layer3_session_notes import NotesWriter, SessionNotesLayer, load_writer
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.layers.layer4_compaction.on_demand import OnDemandCompaction
from coterie.agents.layers.layer4_compaction.pinned_context import MailSection, PinnedSection, TaskSection, TeamSection
from coterie.agents.layers.layer5_extraction import Extraction
from coterie.agents.layers.layer6_dreaming.dream_run import Dreamer, recent_sessions
from coterie.agents.layers.layer6_dreaming.scheduler import DreamScheduler
from coterie.agents.layers.progress.summarizer import LAYER, ProgressSummarizer, TimeoutGateway
from coterie.agents.layers.prompt_cache.break_detection import ForkSharingCheck
from coterie.agents.layers.prompt_cache.keepalive import CacheKeepalive
from coterie.agents.layers.recall_layer import MemoryRecall
from coterie.agents.loop.agent import Agent, Pipeline
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.gateway_protocol import Gateway
from coterie.agents.loop.pipeline import PipelineRole, Steps, arrange, context_steps, disabled_settings
from coterie.agents.mcp.tool_list_file import McpToolList, load_tool_list
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.runtime.setup.agent_parts import AgentParts
from coterie.agents.runtime.setup.context_texts import context_text, index_text, read_indexes
from coterie.errors import ConfigInvalid
from coterie.memory.dreaming.dream_lock import DueCheck
from coterie.memory.instructions.loader import read_instructions
from coterie.session_directory import MAIN

ADMISSION_TIMEOUT = 5.0
"""Maximum seconds that a progress summary waits for its model call to be permitted; then it is skipped."""
MIN_INTERVAL = 0.1
"""Minimum seconds between two progress summaries of an agent, even if the settings have a shorter interval."""


def read_context(parts: AgentParts) -> str:
    """Return the text that precedes the agent's task, with instruction files and memory indexes read again.

    Blocks on the disk. Raises `ConfigInvalid`.
    """
    spec, files = parts.spec, parts.files
    instructions = read_instructions(spec.directory) if spec.has_instructions else None
    servers = (load_tool_list(files.session.directory) or McpToolList()).to_text()
    memory, skills = index_text(read_indexes(parts.memory.places)), parts.skills.listing
    return context_text(spec.directory, files.clock, instructions, memory, skills, servers)


def build_progress(agent: Agent, spec: AgentSpec, gate: Gateway) -> ProgressSummarizer | None:
    """Build the step that summarises *agent*'s work for the user; None if switched off, and for the lead (first agent).

    A summary is skipped if *gate* does not permit its model call soon. An unknown model emits an event and gives None.
    """
    settings = spec.settings.progress
    # By default off with the embedded server, because a script has no replies for calls that it does not expect.
    is_on = not spec.is_embedded if settings.enabled is None else settings.enabled
    if agent.identity.agent == MAIN or not is_on:
        return None
    try:
        model = known_models().get(settings.model)
    except ConfigInvalid as exc:
        agent.report_failure(LAYER, exc)
        return None
    client = agent.client.with_gateway(TimeoutGateway(gate=gate, timeout=ADMISSION_TIMEOUT))
    return ProgressSummarizer(agent, client, model, every=max(MIN_INTERVAL, settings.every))


@attrs.define(eq=False, kw_only=True)
class PipelineBuilder:
    """Builds an agent's pipeline: the steps that run around its model calls. `Agent` calls it; see `load_layers`."""

    parts: AgentParts
    pinned_sections: Sequence[PinnedSection]
    """Sections (team, tasks, mail) that are read again at each compaction, instead of being summarised."""
    notes_writer: NotesWriter | None
    """Writer of session notes, a running summary of the conversation in a file; None if notes are off."""
    steps: Steps = attrs.field(factory=Steps, init=False)
    """Steps of the agent's pipeline, one in each field; empty until the pipeline is built."""

    def __call__(self, agent: Agent) -> Pipeline:
        """Build the steps of *agent*, whose other attributes are already set; return them in order, as its pipeline."""
        spec = self.parts.spec
        self.steps = self._build(agent)
        role: PipelineRole = "agent" if self.parts.point is None else "fork"
        disabled = disabled_settings(spec.settings, agent.conversation.header, is_embedded=spec.is_embedded)
        return arrange(self.steps, disabled, role)

    def waiting(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager for waiting for other agents; it keeps the agent's prompt cache from expiring."""
        assert self.steps.keepalive is not None, "every agent has it"
        return self.steps.keepalive.waiting()

    def _build(self, agent: Agent) -> Steps:
        parts, hooks, settings, recall = self.parts, self.parts.hooks, self.parts.spec.settings.memory.recall, None
        if parts.memory.stores and settings.enabled:
            by = settings.by or ("local" if parts.spec.is_embedded else "model")
            recall = MemoryRecall(agent, parts.memory.stores, settings, by)
        notes, compaction_hook = self._notes(agent), hooks.compaction_hook()
        compaction, (extraction, dreaming) = self._compaction(notes, compaction_hook), self._memory_writers(agent)
        return attrs.evolve(
            context_steps(parts.spec.settings.layers, dict(agent.tools), parts.files.directory, compaction),
            hook_messages=hooks.messages if hooks.has_hooks else None,
            stop_hook=hooks.stop_hook(lambda: bool(parts.mail.messaging.shutdown.requests)),
            compaction_hook=compaction_hook,
            messaging=parts.mail.messaging,
            session_notes=notes,
            on_demand_compaction=OnDemandCompaction(compaction),
            extraction=extraction,
            dreaming=dreaming,
            recall=recall,
            keepalive=CacheKeepalive(agent),
            fork_sharing=None if parts.point is None else ForkSharingCheck(parts.point),
            progress=build_progress(agent, parts.spec, parts.root.gate),
        )

    def _notes(self, agent: Agent) -> SessionNotesLayer | None:
        writer, compaction = self.notes_writer, self.parts.spec.settings.layers.compaction
        if writer is None:
            return None
        used_by = compaction if compaction.enabled and compaction.by_notes else None
        return SessionNotesLayer(agent, writer, compaction=used_by, is_teammate=self.parts.spec.is_teammate)

    def _compaction(self, notes: SessionNotesLayer | None, hook: CompactionHook | None) -> CompactionStep | None:
        settings, parts = self.parts.spec.settings.layers.compaction, self.parts
        if not settings.enabled:
            return None
        return CompactionStep(
            settings=settings,
            pinned_sections=self.pinned_sections,
            context=partial(trio.to_thread.run_sync, read_context, parts),
            mail=parts.mail.messaging,
            notes=notes,
            hook=hook,
        )

    def _memory_writers(self, agent: Agent) -> tuple[Extraction | None, DreamScheduler | None]:
        """Build the steps that save and tidy (dreaming) project memories; None if not the lead, or if memory is off."""
        files, settings, authority = self.parts.files, self.parts.spec.settings.layers, self.parts.authority
        store, author = self.parts.memory.shared, partial(self.parts.memory.author, agent)
        if store is None or not self.parts.spec.is_lead:
            return None, None
        dreamer = Dreamer(
            agent=agent,
            store=store,
            settings=settings.dreaming,
            author=author,
            scratch=agent.workspace.scratch,
            authority=authority,
        )
        sessions = partial(recent_sessions, files.session.directory.parent, files.clock)
        due_check = DueCheck(store.directory, sessions, settings.dreaming, files.clock)
        return Extraction(agent, store, settings.extraction, author, authority), DreamScheduler(dreamer, due_check)


async def load_layers(parts: AgentParts) -> PipelineBuilder:
    """Load the templates of session notes, and return the builder of the agent's pipeline. Raises `ConfigInvalid`."""
    spec, settings, mail, writer = parts.spec, parts.spec.settings.layers.notes, parts.mail, None
    pinned = (
        TeamSection(mail.router.roster, partial(last_agent_changes, parts.files.session)),
        TaskSection(parts.tasks),
        MailSection(mail.router.roster, mail.messaging, mail.sender),
    )
    if settings.enabled:
        load = partial(load_writer, spec.name, spec.directory, parts.files.directory, settings, pinned)
        writer = await trio.to_thread.run_sync(load)
    return PipelineBuilder(parts=parts, pinned_sections=pinned, notes_writer=writer)

"""Setup of the layers of an agent: session notes, compaction, recall, extraction, dreaming and progress."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Literal

import attrs
import trio

from coterie.agents.events.event_reader import last_agent_changes
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.layers.layer3_session_notes import SessionNotesLayer, open_notes
from coterie.agents.layers.layer4_compaction.pinned_context import MailSection, PinnedSection, TaskSection, TeamSection
from coterie.agents.layers.layer4_compaction.step import CompactionStep
from coterie.agents.layers.layer5_extraction import Extraction, open_extraction
from coterie.agents.layers.layer6_dreaming.dream_run import DreamLimits
from coterie.agents.layers.layer6_dreaming.dream_sessions import recent_sessions
from coterie.agents.layers.layer6_dreaming.scheduler import DreamScheduler, open_dreaming
from coterie.agents.layers.progress.summarizer import LAYER, TimeoutGateway, open_summaries
from coterie.agents.layers.recall_layer import MemoryRecall, open_recall
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.model.catalog import Model, known_models
from coterie.agents.loop.model.gateway import Gateway
from coterie.agents.mcp.tool_list_file import McpToolList, load_tool_list
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.root_link.job_messages import DreamJob
from coterie.agents.runtime.agent_files import AgentFiles, AgentWork
from coterie.agents.runtime.agent_mail import AgentMail
from coterie.agents.runtime.setup.context_texts import context_text, read_instructions
from coterie.agents.runtime.setup.memory_setup import AgentMemory
from coterie.agents.runtime.setup.skill_setup import AgentSkills
from coterie.agents.settings import CompactionSettings
from coterie.errors import ConfigInvalid
from coterie.mailbox.tasks.task_list import TaskList
from coterie.memory.compaction.cut_point import KeepLimits
from coterie.memory.compaction.kept_size import CompactionLimits
from coterie.memory.extraction.extraction_schedule import ExtractionLimits
from coterie.memory.notes.limits import NotesLimits
from coterie.memory.recall.selection import RecallLimits
from coterie.session_directory import MAIN


def pinned_sections(seat: AgentFiles, room: AgentMail, tasks: TaskList) -> Sequence[PinnedSection]:
    """What the agent of *seat* must not forget."""
    roster = room.router.roster
    return (
        TeamSection(roster, partial(last_agent_changes, seat.session)),
        TaskSection(tasks),
        MailSection(roster, room.messaging, room.sender),
    )


def build_compaction(
    work: AgentWork,
    seat: AgentFiles,
    room: AgentMail,
    standings: Sequence[PinnedSection],
    memory: AgentMemory,
    skills: AgentSkills,
) -> CompactionStep | None:
    """What compacts the context of the agent; None where that is switched off."""
    settings = work.settings.layers.compaction
    if not settings.enabled:
        return None
    return CompactionStep(
        limits=_compaction_limits(settings),
        pinned_sections=standings,
        context=partial(read_context, work, seat, memory, skills),
        mail=room.messaging,
    )


@asynccontextmanager
async def open_session_notes(
    agent: Agent, work: AgentWork, standings: Sequence[PinnedSection], compact: CompactionStep | None
) -> AsyncIterator[SessionNotesLayer | None]:
    """Keep the session notes of *agent* until the block ends, for *compact* to use; none where that is switched off.

    Raises `ConfigInvalid` for a template or a prompt that cannot be used.
    """
    settings = work.settings.layers.notes
    if not settings.enabled:
        yield None
        return
    limits = NotesLimits(
        first=settings.first,
        step=settings.step,
        calls=settings.calls,
        share=settings.share,
        section=settings.section,
        total=settings.total,
    )
    keep = compact.limits.keep if compact is not None and compact.limits.by_notes else None
    files = {"template": settings.template, "prompt": settings.prompt}
    async with open_notes(agent, limits, standings, keep=keep, **files) as notes:
        if compact is not None:
            compact.notes = notes
        yield notes


async def read_context(work: AgentWork, seat: AgentFiles, memory: AgentMemory, skills: AgentSkills) -> str:
    """What the agent is told before its task, with instruction files and the index of its memory as they are now.

    Raises `ConfigInvalid`.
    """
    return await trio.to_thread.run_sync(_context_sync, work, seat, memory, skills)


def _context_sync(work: AgentWork, seat: AgentFiles, memory: AgentMemory, skills: AgentSkills) -> str:
    instructions = read_instructions(work.project) if work.has_instructions else None
    servers = (load_tool_list(seat.session.directory) or McpToolList()).to_text()
    return context_text(work.project, seat.clock, instructions, memory.index_text(), skills.listing, servers)


def _compaction_limits(settings: CompactionSettings) -> CompactionLimits:
    return CompactionLimits(
        by_notes=settings.by_notes,
        by_model=settings.by_model,
        keep=KeepLimits(least=settings.keep_least, texts=settings.keep_texts, most=settings.keep_most),
        files=settings.files,
        file=settings.file,
        files_total=settings.files_total,
        skill=settings.skill,
        skills_total=settings.skills_total,
        failures=settings.failures,
    )


MEMORY_OFF = "is switched off, or the run is bare; there is nothing to remember with"


@attrs.frozen(kw_only=True)
class MemoryLayers:
    """The layers that serve one agent's memory; None where there is none to serve."""

    recall: MemoryRecall | None = None
    extraction: Extraction | None = None
    dreaming: DreamScheduler | None = None
    extracts: bool = False
    """Whether that happens by itself."""
    dreams: bool = False

    async def extract(self) -> None:
        """Take memories from the conversation because the user wants it. Raises `ConfigInvalid` without a memory."""
        if self.extraction is None:
            raise ConfigInvalid("memory", MEMORY_OFF)
        await self.extraction.run_now()

    async def dream(self, word: DreamJob) -> None:
        """Dream because the user wants it; what goes wrong is an event. Raises `ConfigInvalid` while none can begin."""
        if self.dreaming is None:
            raise ConfigInvalid("memory", MEMORY_OFF)
        await self.dreaming.run_now(word)

    def on_loop_end(self) -> None:
        """A turn loop of the agent has ended."""
        if self.extraction is not None and self.extracts:
            self.extraction.on_run_finished()
        if self.dreaming is not None and self.dreams:
            self.dreaming.on_run_finished()


@asynccontextmanager
async def open_memory_layers(
    agent: Agent, work: AgentWork, memory: AgentMemory, authority: Authorizer, compact: CompactionStep | None
) -> AsyncIterator[MemoryLayers]:
    """Serve the *memory* of *agent* until the block ends, which waits a while for what is under way.

    All agents recall; only the lead has memories extracted, and dreams.
    """
    settings, seat = work.settings, memory.files
    store = memory.shared if seat.name == MAIN else None
    async with AsyncExitStack() as stack:
        recall = extraction = dreaming = None
        if memory.stores and settings.memory.recall.enabled:
            opened = open_recall(agent, memory.stores, _recall_limits(work), _recaller(work))
            recall = await stack.enter_async_context(opened)
            steps = agent.pipeline
            agent.pipeline = attrs.evolve(steps, calls=(recall, *steps.calls), messages=(*steps.messages, recall))
            if compact is not None:
                compact.recall = recall
        if store is not None:
            given = settings.layers.extraction
            limits = ExtractionLimits(every=given.every, turns=given.turns, drain=given.drain)
            extracting = open_extraction(agent, store, limits, memory.author, authority=authority)
            extraction = await stack.enter_async_context(extracting)
            touched = partial(recent_sessions, seat.session.directory.parent, seat.clock)
            dreams = open_dreaming(agent, store, touched, _dream_limits(work), memory.author, authority=authority)
            dreaming = await stack.enter_async_context(dreams)
        yield MemoryLayers(
            recall=recall,
            extraction=extraction,
            dreaming=dreaming,
            # In that mode the agent keeps a log, and what becomes a memory of its own is for dreams to say.
            extracts=_is_on(settings.layers.extraction.enabled, work) and not settings.memory.daily_log,
            dreams=_is_on(settings.layers.dreaming.enabled, work),
        )


def _is_on(enabled: bool | None, work: AgentWork) -> bool:
    """Whether a layer works by itself. A script that does not expect it has no reply for it, so that it must ask."""
    return not work.is_embedded if enabled is None else enabled


def _recaller(work: AgentWork) -> Literal["model", "local"]:
    return work.settings.memory.recall.by or ("local" if work.is_embedded else "model")


def _recall_limits(work: AgentWork) -> RecallLimits:
    given = work.settings.memory.recall
    return RecallLimits(
        model=given.model,
        most=given.most,
        scan=given.scan,
        file_lines=given.file_lines,
        file_bytes=given.file_bytes,
        session_bytes=given.session_bytes,
        stale_days=given.stale_days,
    )


def _dream_limits(work: AgentWork) -> DreamLimits:
    given = work.settings.layers.dreaming
    return DreamLimits(
        hours=given.hours,
        scan_minutes=given.scan_minutes,
        sessions=given.sessions,
        turns=given.turns,
        deletions=given.deletions,
        drain=given.drain,
    )


ADMISSION_TIMEOUT = 5.0
"""Seconds that a summary waits at the gate: who waits longer meets a cool-down, or a crowd that is worth more."""
MIN_INTERVAL = 0.1
"""Seconds between two looks at an agent, whatever the settings say."""


@asynccontextmanager
async def open_progress_summaries(agent: Agent, work: AgentWork, gate: Gateway) -> AsyncIterator[None]:
    """Tell what *agent* is at until the block ends; nobody does so for the lead, whose words the user reads anyway.

    Summaries pass *gate*, and are left out rather than waited for. A model that there is not is an event.
    """
    model = _model_of(agent, work)
    if model is None:
        yield
        return
    client = agent.client.with_gateway(TimeoutGateway(gate=gate, patience=ADMISSION_TIMEOUT))
    async with open_summaries(agent, client, model, every=max(MIN_INTERVAL, work.settings.progress.every)):
        yield


def _model_of(agent: Agent, work: AgentWork) -> Model | None:
    """Whom to ask; None if nobody is to be."""
    given = work.settings.progress
    # A script that does not expect it has no reply for it, so that it must ask.
    is_on = not work.is_embedded if given.enabled is None else given.enabled
    if agent.identity.agent == MAIN or not is_on:
        return None
    try:
        return known_models().get(given.model)
    except ConfigInvalid as exc:
        agent.emit(LayerFailed(layer=LAYER, reason=str(exc)))
        return None

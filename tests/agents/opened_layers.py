"""Layers of a scripted agent, added to its pipeline one by one.

In the product one table orders all steps (`coterie.agents.loop.pipeline`); a test adds only the layers that it needs.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.events.layer_events import Compacted
from coterie.agents.layers.layer3_session_notes import SessionNotesLayer, load_writer
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.layers.layer4_compaction.on_demand import OnDemandCompaction
from coterie.agents.layers.layer4_compaction.pinned_context import PinnedSection
from coterie.agents.layers.layer5_extraction import Extraction
from coterie.agents.layers.layer6_dreaming.dream_run import Dreamer
from coterie.agents.layers.layer6_dreaming.scheduler import DreamScheduler
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.layers.progress.summarizer import ProgressSummarizer
from coterie.agents.layers.prompt_cache.keepalive import CacheKeepalive, SleepUntil, sleep_until
from coterie.agents.layers.recall_layer import MemoryRecall
from coterie.agents.loop.agent import Agent, Pipeline
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.client import ModelClient
from coterie.agents.loop.pipeline import arrange, context_steps, disabled_settings
from coterie.agents.settings import Settings
from coterie.agents.tools.tool import Tool
from coterie.memory.dreaming.due_check import DueCheck
from coterie.memory.layer_settings import CompactionSettings, LayersSettings, NotesSettings, RecallSettings
from coterie.memory.store.memory_store import MemoryStore

COMPACTED = Compacted(
    trigger="manual",
    by="notes",
    tokens_before=0,
    tokens_after=0,
    left=0,
    kept=0,
    words=0,
    words_added=0,
    restored=[],
    dropped=[],
    dropped_count=0,
    seconds=0.0,
    cost_usd="0",
    where="",
)
"""A compaction event with arbitrary content."""


def build_pipeline(
    settings: LayersSettings, tools: dict[str, Tool], scratch: Path, compaction: CompactionStep | None = None
) -> Pipeline:
    """Create a pipeline that has only the context layers."""
    return arrange(context_steps(settings, tools, scratch, compaction), disabled_settings(Settings(layers=settings)))


def with_mail(pipeline: Pipeline, mail: Messaging) -> Pipeline:
    """Return *pipeline* with layer 7."""
    return attrs.evolve(pipeline, new_message=(mail, *pipeline.new_message), before_call=(mail, *pipeline.before_call))


def with_on_demand_compaction(pipeline: Pipeline, on_demand: OnDemandCompaction) -> Pipeline:
    """Return *pipeline* with compaction on demand."""
    return attrs.evolve(pipeline, before_call=(on_demand, *pipeline.before_call))


@asynccontextmanager
async def open_notes(
    agent: Agent,
    settings: NotesSettings | None = None,
    pinned: Sequence[PinnedSection] = (),
    *,
    compaction: CompactionSettings | None = None,
    is_teammate: bool = True,
) -> AsyncIterator[SessionNotesLayer]:
    """Layer 3 of *agent*, while the block runs."""
    workspace = agent.workspace
    writer = await trio.to_thread.run_sync(
        lambda: load_writer(
            agent.identity.agent, workspace.root, workspace.scratch, settings or NotesSettings(), pinned
        )
    )
    notes = SessionNotesLayer(agent, writer, compaction=compaction, is_teammate=is_teammate)
    pipeline = agent.pipeline
    agent.pipeline = attrs.evolve(pipeline, reply=(*pipeline.reply, notes), compacted=(notes, *pipeline.compacted))
    async with notes.open():
        yield notes


@asynccontextmanager
async def open_recall(
    agent: Agent, stores: Sequence[MemoryStore], settings: RecallSettings, by: Any
) -> AsyncIterator[MemoryRecall]:
    """Recall for *agent*, while the block runs; not a step of its pipeline yet."""
    recall = MemoryRecall(agent, stores, settings, by)
    async with recall.open():
        yield recall


@asynccontextmanager
async def open_keepalive(agent: Agent, sleep: SleepUntil = sleep_until) -> AsyncIterator[CacheKeepalive]:
    """The cache keepalive of *agent*, while the block runs."""
    keepalive = CacheKeepalive(agent, sleep)
    pipeline = agent.pipeline
    agent.pipeline = attrs.evolve(
        pipeline, before_call=(*pipeline.before_call, keepalive), reply=(*pipeline.reply, keepalive)
    )
    async with keepalive.open():
        yield keepalive


@asynccontextmanager
async def open_summaries(
    agent: Agent, client: ModelClient, model: Model, *, every: float, size: int | None = None
) -> AsyncIterator[ProgressSummarizer]:
    """Progress summaries of *agent*, while the block runs."""
    summarizer = ProgressSummarizer(agent, client, model, every=every, size=size)
    agent.pipeline = attrs.evolve(agent.pipeline, reply=(*agent.pipeline.reply, summarizer))
    async with summarizer.open():
        yield summarizer


@asynccontextmanager
async def open_extraction(agent: Agent, *arguments: Any, **options: Any) -> AsyncIterator[Extraction]:
    """Layer 5 of *agent*, while the block runs; arguments as for `Extraction`."""
    extraction = Extraction(agent, *arguments, **options)
    async with extraction.open():
        yield extraction


@asynccontextmanager
async def open_dreaming(agent: Agent, sessions: Any, **options: Any) -> AsyncIterator[DreamScheduler]:
    """Layer 6 of *agent*, while the block runs; *options* as for `Dreamer`."""
    dreamer = Dreamer(agent=agent, scratch=agent.workspace.scratch, **options)
    dreaming = DreamScheduler(dreamer, DueCheck(dreamer.store.directory, sessions, dreamer.settings, agent.clock))
    async with dreaming.open():
        yield dreaming

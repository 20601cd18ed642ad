"""Layers of a scripted agent, added to its pipeline one by one.

In the product one table orders all steps (`coterie.agents.loop.pipeline`); a test adds only the layers that it needs.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.layers.layer3_session_notes import SessionNotesLayer, load_writer
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.layers.layer4_compaction.on_demand import OnDemandCompaction
from coterie.agents.layers.layer4_compaction.pinned_context import PinnedSection
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.loop.agent import Agent, Pipeline
from coterie.agents.loop.pipeline import arrange, context_steps, disabled_settings
from coterie.agents.settings import Settings
from coterie.agents.tools.tool import Tool
from coterie.memory.layer_settings import CompactionSettings, LayersSettings, NotesSettings
from coterie.memory.notes.template import default_template


def build_pipeline(
    settings: LayersSettings, tools: dict[str, Tool], scratch: Path, compaction: CompactionStep | None = None
) -> Pipeline:
    return arrange(context_steps(settings, tools, scratch, compaction), disabled_settings(Settings(layers=settings)))


def with_mail(pipeline: Pipeline, mail: Messaging) -> Pipeline:
    return attrs.evolve(pipeline, new_message=(mail, *pipeline.new_message), before_call=(mail, *pipeline.before_call))


def with_on_demand_compaction(pipeline: Pipeline, on_demand: OnDemandCompaction) -> Pipeline:
    return attrs.evolve(pipeline, before_call=(on_demand, *pipeline.before_call))


def begin_section(directory: Path, heading: str, text: str) -> dict[str, Any]:
    """Return the scripted edit with which a notes helper begins a section of the notes in *directory*."""
    [hint] = [section.hint[0] for section in default_template().sections if section.heading == heading]
    return {"Edit": {"file_path": str(directory / "notes.md"), "old_string": hint, "new_string": f"{hint}\n{text}"}}


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

"""Strategies for a window that is too small for the session: all layers, some of them, or common practice."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import attrs

from coterie.agents.layers.layer3_session_notes import SessionNotesLayer, load_writer
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.loop.agent import Agent, Pipeline
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.token_estimate import estimate_block
from coterie.agents.loop.loop import OUTPUT_SIZES
from coterie.agents.loop.model.api_errors import PromptTooLong
from coterie.agents.loop.pipeline import WindowCheck, arrange, context_steps, disabled_settings
from coterie.agents.settings import Settings
from coterie.memory.compaction.cut_point import oldest_rounds, split_messages
from coterie.memory.compaction.result_clearing import clear_results
from coterie.memory.layer_settings import (
    ClearingSettings,
    CompactionSettings,
    LayersSettings,
    NotesSettings,
    ResultSettings,
)

LEFT_OUT = "(The oldest part of this conversation has been left out.)"
NO_LAYERS = LayersSettings(
    results=ResultSettings(enabled=False), clearing=ClearingSettings(by_time=False, by_cache=False, by_api=False)
)
EDITING_ONLY = attrs.evolve(NO_LAYERS, clearing=ClearingSettings(by_time=False, by_cache=False))
TWO_LAYERS = LayersSettings()


@attrs.frozen(kw_only=True)
class Strategy:
    """One strategy."""

    name: str
    layers: LayersSettings
    """Layers 1 and 2."""
    has_notes: bool = False
    compaction: CompactionSettings | None = None
    """None: the oldest rounds are dropped when the window is full."""

    @asynccontextmanager
    async def open_steps(self, agent: Agent) -> AsyncIterator[SessionNotesLayer | None]:
        """Give *agent* its pipeline, and run the background work of its notes until the block ends."""
        workspace, notes = agent.workspace, None
        if self.has_notes:
            writer = load_writer(agent.identity.agent, workspace.root, workspace.scratch, NotesSettings())
            notes = SessionNotesLayer(agent, writer, compaction=self.compaction)
        compact = None if self.compaction is None else CompactionStep(settings=self.compaction, notes=notes)
        steps = attrs.evolve(
            context_steps(self.layers, dict(agent.tools), agent.workspace.scratch, compact), session_notes=notes
        )
        agent.pipeline = arrange(steps, disabled_settings(Settings(layers=self.layers)))
        if compact is None:
            agent.pipeline = _dropping(agent.pipeline, DropOldest(agent.model.window))
        async with nullcontext() if notes is None else notes.open():
            yield notes


OURS = Strategy(name="all layers", layers=TWO_LAYERS, has_notes=True, compaction=CompactionSettings())
WITHOUT_NOTES = Strategy(name="all but notes", layers=TWO_LAYERS, compaction=CompactionSettings(by_notes=False))
OVERFLOWING = Strategy(name="nothing until overflow", layers=NO_LAYERS)
SUMMARISING = Strategy(name="a summary each time", layers=NO_LAYERS, compaction=CompactionSettings(by_notes=False))
EDITING = Strategy(name="context editing only", layers=EDITING_ONLY)
STRATEGIES = {each.name: each for each in (OURS, WITHOUT_NOTES, OVERFLOWING, SUMMARISING, EDITING)}


@attrs.frozen
class DropOldest:
    """Drops the oldest half of a conversation when the next reply might not fit."""

    window: int
    share: float = 0.5

    async def before_call(self, agent: Agent) -> None:
        """Drop messages if the window is nearly full."""
        if agent.meter.tokens(agent.conversation) > self.window - OUTPUT_SIZES[0]:
            await self.on_overflow(agent, PromptTooLong())

    async def on_overflow(self, agent: Agent, _overflow: PromptTooLong) -> bool:
        """Start a new epoch with the newest rounds, after a note that earlier ones were dropped."""
        messages = split_messages(agent.conversation.segments)
        sizes = [sum(estimate_block(segment.data) for segment in message) for message in messages]
        # The last round stays whatever its size, because the model has not read its results yet.
        start = oldest_rounds(messages[:-2], sizes[:-2], int(sum(sizes) * self.share))
        staying = [segment for message in messages[start:] for segment in message]
        agent.conversation.rewrite([("user", [text_block(LEFT_OUT)]), *clear_results(staying, has_changed=True)])
        agent.transcript.record(agent.conversation)
        agent.announced.append("the oldest rounds dropped")
        return start > 0


def _dropping(pipeline: Pipeline, drop: DropOldest) -> Pipeline:
    """Return *pipeline* with *drop* instead of the step that ends a run with a full window."""
    calls = (step for step in pipeline.before_call if not isinstance(step, WindowCheck))
    return attrs.evolve(pipeline, before_call=(*calls, drop), overflow=(drop,))

"""What serves an agent's memory while it works: recall, extraction and dreams, as the settings say."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Literal

import attrs

from coterie.agents.agent import Agent
from coterie.agents.compaction.step import CompactContext
from coterie.agents.control.chores import Dream
from coterie.agents.dreaming.background import Dreaming, open_dreaming
from coterie.agents.dreaming.dream import DreamLimits
from coterie.agents.dreaming.transcripts import touched_sessions
from coterie.agents.errors import ConfigInvalid
from coterie.agents.layers.extraction import Extraction, open_extraction
from coterie.agents.layers.recall import Recall, open_recall
from coterie.agents.permissions import Authority
from coterie.memory.extraction.schedule import ExtractionLimits
from coterie.memory.recall.limits import RecallLimits
from coterie.orchestrator.agent_memory import AgentMemory
from coterie.orchestrator.seat import Work
from coterie.orchestrator.session import MAIN

OFF = "is switched off, or the run is bare; there is nothing to remember with"


@attrs.frozen(kw_only=True)
class KeptMemory:
    """The layers that serve one agent's memory; None where there is none to serve."""

    recall: Recall | None = None
    extraction: Extraction | None = None
    dreaming: Dreaming | None = None
    extracts: bool = False
    """Whether that happens by itself."""
    dreams: bool = False

    async def extract(self) -> None:
        """Take memories from the conversation because the user wants it. Raises `ConfigInvalid` without a memory."""
        if self.extraction is None:
            raise ConfigInvalid("memory", OFF)
        await self.extraction.now()

    async def dream(self, word: Dream) -> None:
        """Dream because the user wants it; what goes wrong is an event. Raises `ConfigInvalid` while none can begin."""
        if self.dreaming is None:
            raise ConfigInvalid("memory", OFF)
        await self.dreaming.now(word)

    def finished(self) -> None:
        """A turn loop of the agent has ended."""
        if self.extraction is not None and self.extracts:
            self.extraction.finished()
        if self.dreaming is not None and self.dreams:
            self.dreaming.finished()


@asynccontextmanager
async def memory_kept(
    agent: Agent, work: Work, memory: AgentMemory, authority: Authority, compact: CompactContext | None
) -> AsyncIterator[KeptMemory]:
    """Serve the *memory* of *agent* until the block ends, which waits a while for what is under way.

    All agents recall; only the lead has memories extracted, and dreams.
    """
    settings, seat = work.settings, memory.seat
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
            touched = partial(touched_sessions, seat.session.directory.parent, seat.clock)
            dreams = open_dreaming(agent, store, touched, _dream_limits(work), memory.author, authority=authority)
            dreaming = await stack.enter_async_context(dreams)
        yield KeptMemory(
            recall=recall,
            extraction=extraction,
            dreaming=dreaming,
            # In that mode the agent keeps a log, and what becomes a memory of its own is for dreams to say.
            extracts=_is_on(settings.layers.extraction.enabled, work) and not settings.memory.daily_log,
            dreams=_is_on(settings.layers.dreaming.enabled, work),
        )


def _is_on(enabled: bool | None, work: Work) -> bool:
    """Whether a layer works by itself. A script that does not expect it has no reply for it, so that it must ask."""
    return not work.is_embedded if enabled is None else enabled


def _recaller(work: Work) -> Literal["model", "local"]:
    return work.settings.memory.recall.by or ("local" if work.is_embedded else "model")


def _recall_limits(work: Work) -> RecallLimits:
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


def _dream_limits(work: Work) -> DreamLimits:
    given = work.settings.layers.dreaming
    return DreamLimits(
        hours=given.hours,
        scan_minutes=given.scan_minutes,
        sessions=given.sessions,
        turns=given.turns,
        deletions=given.deletions,
        drain=given.drain,
    )

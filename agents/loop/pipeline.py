"""Pipeline: the layers around every model call in their order, the cheapest first."""

from collections.abc import Sequence
from pathlib import Path

import attrs

from coterie.agents.events.layer_events import WindowFilling
from coterie.agents.layers.layer1_tool_results import ToolResultStorage
from coterie.agents.layers.layer2_clearing import (
    ClearByApi,
    ClearByCache,
    ClearByTime,
    MediaClearing,
    clearable_results,
)
from coterie.agents.layers.layer4_compaction.step import CompactionStep
from coterie.agents.layers.prompt_cache.break_detection import CacheBreakDetector
from coterie.agents.loop.agent import NOTHING, AddedBlocks, Agent, Pipeline, ToolAnswer
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.run_result import EndReason
from coterie.agents.tools.tool import RESULTS_DIRECTORY, Tool
from coterie.memory.compaction.result_clearing import ClearingLimits
from coterie.memory.compaction.result_storage import ResultLimits


@attrs.frozen
class JobNotices:
    """Adds what the jobs of the agent's shell have to say."""

    def add(self, agent: Agent, _answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """One line for each job that has ended since it was last asked."""
        news = agent.workspace.jobs.take_finished() if agent.workspace.jobs else ()
        return AddedBlocks(blocks=(text_block("\n".join(news)),)) if news else NOTHING


LEVELS = ("block", "compact", "warn")


@attrs.define(eq=False)
class WindowCheck:
    """Tells each threshold once, until the context has shrunk below it again."""

    _level: str | None = None

    async def prepare(self, agent: Agent) -> EndReason | None:
        """End the run at the last threshold."""
        tokens = agent.meter.tokens(agent.conversation)
        thresholds = attrs.asdict(agent.meter.thresholds)
        level = next((level for level in LEVELS if tokens >= thresholds[level]), None)
        if level is not None and level != self._level:
            agent.emit(WindowFilling(level=level, tokens=tokens, threshold=thresholds[level]))  # type: ignore[arg-type]  # one of the three
        self._level = level
        return "blocked" if level == "block" else None


@attrs.frozen(kw_only=True)
class PipelineOptions:
    """Which layers work, and their numbers."""

    stores_results: bool = True
    results: ResultLimits = attrs.field(factory=ResultLimits)
    caps: dict[str, int] = attrs.field(factory=dict)
    """Characters of a result that stay, by tool, instead of the tool's own cap."""
    clears_by_time: bool = True
    clears_by_cache: bool = False
    """Only where the provider takes edits of its cache."""
    clears_by_api: bool = True
    clearing: ClearingLimits = attrs.field(factory=ClearingLimits)


def build_pipeline(
    settings: PipelineOptions, tools: dict[str, Tool], scratch: Path, compact: CompactionStep | None = None
) -> Pipeline:
    """The steps of an agent that keeps its files in *scratch*, and whose context *compact* compacts if given."""
    results = clearable_results(tools)
    limits = settings.clearing
    store = ToolResultStorage(directory=scratch / RESULTS_DIRECTORY, limits=settings.results, caps=settings.caps)
    by_time, by_cache, by_api = (
        ClearByTime(limits, results),
        ClearByCache(limits, results),
        ClearByApi(limits, results),
    )
    return Pipeline(
        results=(store,) if settings.stores_results else (),
        messages=(JobNotices(), *((by_cache,) if settings.clears_by_cache else ())),
        calls=(
            *((by_time,) if settings.clears_by_time else ()),
            *((by_api,) if settings.clears_by_api else ()),
            *((compact,) if compact is not None else ()),
            WindowCheck(),
        ),
        overflows=(MediaClearing(), *((compact,) if compact is not None else ())),
        replies=(*((by_api,) if settings.clears_by_api else ()), CacheBreakDetector()),
    )

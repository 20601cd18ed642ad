"""The order of layers around every model call, the cheapest first."""

from pathlib import Path

import attrs

from coterie.agents.agent import Pipeline
from coterie.agents.compaction.step import CompactContext
from coterie.agents.layers.cache_breaks import DetectBreaks
from coterie.agents.layers.clearing import ClearByApi, ClearByCache, ClearByTime, clearable_results
from coterie.agents.layers.job_news import TellJobNews
from coterie.agents.layers.media import LeaveOutMedia
from coterie.agents.layers.stored_results import StoreResults
from coterie.agents.layers.window_check import CheckWindow
from coterie.agents.tools.tool import RESULTS_DIRECTORY, Tool
from coterie.memory.clearing import ClearingLimits
from coterie.memory.tool_results import ResultLimits


@attrs.frozen(kw_only=True)
class LayerSettings:
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


def layered_pipeline(
    settings: LayerSettings, tools: dict[str, Tool], scratch: Path, compact: CompactContext | None = None
) -> Pipeline:
    """The steps of an agent that keeps its files in *scratch*, and whose context *compact* compacts if given."""
    results = clearable_results(tools)
    limits = settings.clearing
    store = StoreResults(directory=scratch / RESULTS_DIRECTORY, limits=settings.results, caps=settings.caps)
    by_time, by_cache, by_api = (
        ClearByTime(limits, results),
        ClearByCache(limits, results),
        ClearByApi(limits, results),
    )
    return Pipeline(
        results=(store,) if settings.stores_results else (),
        messages=(TellJobNews(), *((by_cache,) if settings.clears_by_cache else ())),
        calls=(
            *((by_time,) if settings.clears_by_time else ()),
            *((by_api,) if settings.clears_by_api else ()),
            *((compact,) if compact is not None else ()),
            CheckWindow(),
        ),
        overflows=(LeaveOutMedia(), *((compact,) if compact is not None else ())),
        replies=(*((by_api,) if settings.clears_by_api else ()), DetectBreaks()),
    )

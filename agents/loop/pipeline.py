"""The pipeline of an agent: one ordered table of all steps, which are code that runs around its model calls.

`STEPS` is the only place that orders steps. Each row names the hook (the moment) at which a step runs, the layer that
it belongs to, and the setting that switches it off. Agents and forks (agents that start with their parent's
conversation) use the same table. A helper (a background call of the agent) runs only the hook `tool_results`. The
layers keep the context small:

1. tool results: long results are stored in files, and a preview stays
2. clearing: old results are removed from the context, by time, by cache edit or by the API
3. session notes: a helper writes notes, which compaction can use as a summary without a model call
4. compaction: a summary replaces the older part of the conversation
5. extraction: facts worth keeping are saved as memories
6. dreaming: memories are consolidated, as a change that can be reviewed
7. messaging: forks, subagents and teammates do work in contexts of their own
"""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import attrs

from coterie.agents.events.layer_events import WindowFilling
from coterie.agents.hooks.lifecycle_hooks import CompactionHook, HookMessages, StopHook
from coterie.agents.layers.layer1_tool_results import ToolResultStorage
from coterie.agents.layers.layer2_clearing import (
    ClearByApi,
    ClearByCache,
    ClearByTime,
    MediaClearing,
)
from coterie.agents.layers.layer3_session_notes import SessionNotesLayer
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.layers.layer4_compaction.on_demand import OnDemandCompaction
from coterie.agents.layers.layer5_extraction import Extraction
from coterie.agents.layers.layer6_dreaming.scheduler import DreamScheduler
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.layers.progress.summarizer import ProgressSummarizer
from coterie.agents.layers.prompt_cache.break_detection import CacheBreakDetector, ForkSharingCheck
from coterie.agents.layers.prompt_cache.keepalive import CacheKeepalive
from coterie.agents.layers.recall_layer import MemoryRecall
from coterie.agents.loop.agent import NOTHING, AddedBlocks, Agent, Pipeline, ToolAnswer
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.run_result import EndReason
from coterie.agents.settings import Settings
from coterie.agents.tools.tool import RESULTS_DIRECTORY, Tool
from coterie.memory.compaction.result_clearing import ClearableResults
from coterie.memory.layer_settings import LayersSettings

Hook = Literal["tool_results", "new_message", "before_call", "overflow", "reply", "stop", "end", "compacted"]
"""Moment at which a step runs, in this order: on the tool results of a turn, on the message that contains them, before
a model call, when the prompt is too long for the API, after a reply, when the model makes no more tool calls, when a
turn loop has completed, after a compaction. `Pipeline` has one field for each."""

PipelineRole = Literal["agent", "fork"]


@attrs.frozen
class Row:
    """One row of the table `STEPS`: a pipeline step, and a hook (moment around a model call) at which it runs."""

    hook: Hook
    step: str
    """Name of the field of `Steps` that contains the step."""
    layer: int | None = None
    """Number of the context layer to which the step belongs; None for a step outside the layers."""
    setting: str | None = None
    """Key of the setting that switches the step on or off; None if the step is always on."""
    roles: tuple[PipelineRole, ...] = ("agent", "fork")
    """Kinds of agents that run the step: "fork" for one begun with its parent's conversation, "agent" for any other."""


RESULTS = "layers.results.enabled"
BY_TIME = "layers.clearing.by_time"
BY_CACHE = "layers.clearing.by_cache"
BY_API = "layers.clearing.by_api"
NOTES = "layers.notes.enabled"
COMPACTION = "layers.compaction.enabled"
EXTRACTION = "layers.extraction.enabled"
DREAMING = "layers.dreaming.enabled"
RECALL = "memory.recall.enabled"
PROGRESS = "progress.enabled"
HOOKS = "hooks.enabled"

STEPS = (
    Row("tool_results", "tool_results", 1, RESULTS),
    # Blocks behind the results, in this order.
    Row("new_message", "hook_messages", None, HOOKS),
    Row("new_message", "messaging", 7),
    Row("new_message", "job_notices"),
    Row("new_message", "clear_by_cache", 2, BY_CACHE, ("agent",)),
    Row("new_message", "recall", None, RECALL),
    Row("before_call", "on_demand_compaction", 4),  # replies "switched off" where layer 4 is off
    Row("before_call", "recall", None, RECALL),  # starts a query and waits for nothing
    Row("before_call", "hook_messages", None, HOOKS),  # may end the run
    Row("before_call", "messaging", 7),  # acknowledges messages; may end the run
    Row("before_call", "clear_by_time", 2, BY_TIME),
    Row("before_call", "clear_by_api", 2, BY_API),
    Row("before_call", "compaction", 4, COMPACTION),
    Row("before_call", "window_check"),  # may end the run
    Row("before_call", "keepalive"),  # last, because until here the TTLs of the agent are those in the cache
    Row("overflow", "media_clearing", 2),
    Row("overflow", "compaction", 4, COMPACTION),
    Row("reply", "fork_sharing", 7, None, ("fork",)),  # before break detection, which clears `Agent.announced`
    Row("reply", "clear_by_api", 2, BY_API),
    Row("reply", "break_detection"),
    Row("reply", "keepalive"),
    Row("reply", "session_notes", 3, NOTES),
    Row("reply", "progress", None, PROGRESS),
    Row("stop", "stop_hook", None, HOOKS),
    Row("end", "extraction", 5, EXTRACTION),
    Row("end", "dreaming", 6, DREAMING),
    Row("compacted", "session_notes", 3, NOTES),
    Row("compacted", "recall", None, RECALL),
    Row("compacted", "compaction_hook", None, HOOKS),
)

BACKGROUND = ("keepalive", "session_notes", "recall", "extraction", "dreaming", "progress")
"""Names of the steps with a background task, in the order of starting these tasks. They are stopped in reverse."""


@attrs.frozen
class JobNotices:
    """Step that tells the model which background jobs of the agent's shell have ended."""

    def add_blocks(self, agent: Agent, _answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """Return one text block with a line for each job that ended since the last message; none if no job ended."""
        news = agent.workspace.jobs.take_finished() if agent.workspace.jobs else ()
        return AddedBlocks(blocks=(text_block("\n".join(news)),)) if news else NOTHING


LEVELS = ("block", "compact", "warn")


@attrs.define(eq=False)
class WindowCheck:
    """Step that emits an event when the context window fills to a threshold, and ends the run at the last threshold."""

    _level: str | None = None

    async def before_call(self, agent: Agent) -> EndReason | None:
        """Emit an event if the highest reached threshold is another one than before; end the run at `block`."""
        tokens = agent.meter.tokens(agent.conversation)
        thresholds = attrs.asdict(agent.meter.thresholds)
        level = next((level for level in LEVELS if tokens >= thresholds[level]), None)
        if level is not None and level != self._level:
            agent.emit(WindowFilling(level=level, tokens=tokens, threshold=thresholds[level]))  # type: ignore[arg-type]  # one of the three
        self._level = level
        return "blocked" if level == "block" else None


@attrs.frozen(kw_only=True)
class Steps:
    """All pipeline steps of one agent; None for a step that the agent lacks, such as hooks without a hook file."""

    tool_results: ToolResultStorage | None = None
    hook_messages: HookMessages | None = None
    stop_hook: StopHook | None = None
    compaction_hook: CompactionHook | None = None
    messaging: Messaging | None = None
    job_notices: JobNotices | None = None
    clear_by_time: ClearByTime | None = None
    clear_by_cache: ClearByCache | None = None
    clear_by_api: ClearByApi | None = None
    media_clearing: MediaClearing | None = None
    session_notes: SessionNotesLayer | None = None
    compaction: CompactionStep | None = None
    on_demand_compaction: OnDemandCompaction | None = None
    extraction: Extraction | None = None
    dreaming: DreamScheduler | None = None
    recall: MemoryRecall | None = None
    keepalive: CacheKeepalive | None = None
    break_detection: CacheBreakDetector | None = None
    fork_sharing: ForkSharingCheck | None = None
    window_check: WindowCheck | None = None
    progress: ProgressSummarizer | None = None


def arrange(steps: Steps, disabled: Collection[str] = (), role: PipelineRole = "agent") -> Pipeline:
    """Create the pipeline of *steps* in the order of `STEPS`, without rows whose setting is in *disabled*.

    Rows that are not for agents of this *role* are left out too.
    """
    rows = [row for row in STEPS if row.setting not in disabled and role in row.roles]
    chosen: dict[str, tuple[Any, ...]] = {
        hook: tuple(step for row in rows if row.hook == hook and (step := getattr(steps, row.step)) is not None)
        for hook in get_args(Hook)
    }
    return Pipeline(**chosen)


def disabled_settings(
    settings: Settings, header: KeyHeader | None = None, *, is_embedded: bool = False
) -> frozenset[str]:
    """Return the keys of the settings that switch steps off, for `arrange`.

    *header* has the parameters of a begun conversation, which decide on clearing by cache edit and API. A daily log
    turns extraction off. A setting without a value (None) is on, but off with the embedded server (scripted replies).
    """
    switches = {row.setting: settings.value(row.setting) for row in STEPS if row.setting is not None}
    if header is not None:  # a conversation keeps the parameters of its first request
        switches[BY_CACHE] = known_models().betas["cache_edits"] in header.betas
        switches[BY_API] = header.context_management is not None
    if settings.memory.daily_log:  # the agent writes a log instead, and dreams turn it into memories
        switches[EXTRACTION] = False
    return frozenset(key for key, is_on in switches.items() if not (not is_embedded if is_on is None else is_on))


@asynccontextmanager
async def open_background(steps: Steps) -> AsyncIterator[None]:
    """Start the background tasks of *steps*, such as keeping notes, and stop them at the end of the block."""
    async with AsyncExitStack() as stack:
        for name in BACKGROUND:
            if (step := getattr(steps, name)) is not None:
                await stack.enter_async_context(step.open())
        yield


def context_steps(
    settings: LayersSettings, tools: dict[str, Tool], scratch: Path, compaction: CompactionStep | None = None
) -> Steps:
    """Create the steps that need nothing but the agent's context. Long tool results are stored below *scratch*."""
    clearing = settings.clearing
    results = ClearableResults(lambda name: name in tools and tools[name].is_clearable)
    return Steps(
        tool_results=ToolResultStorage(directory=scratch / RESULTS_DIRECTORY, settings=settings.results),
        job_notices=JobNotices(),
        clear_by_time=ClearByTime(clearing, results),
        clear_by_cache=ClearByCache(clearing, results),
        clear_by_api=ClearByApi(clearing, results),
        media_clearing=MediaClearing(),
        compaction=compaction,
        break_detection=CacheBreakDetector(),
        window_check=WindowCheck(),
    )

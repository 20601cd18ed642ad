"""The pipeline of an agent: one ordered table of all steps around its model calls.

`STEPS` is the only place that orders steps. Read it from top to bottom: each row names the hook at which a step runs,
the layer that it belongs to, and the setting that switches it off. Agents, forks and agents in a shared process select
from the same table by their role; a helper runs the hook `tool_results` of its agent and nothing else. The layers:

1. tool results: long results go to a file, a preview stays
2. clearing: old results leave the context, by time, by cache edit or by the API
3. session notes: a helper keeps notes, which serve as a free summary
4. compaction: a summary replaces the older part of the conversation
5. extraction: facts worth keeping become memories
6. dreaming: memories are consolidated, as a change that can be reviewed
7. messaging: work leaves the context for forks, subagents and teammates
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
"""Moment at which a step runs: on the results of a turn, on the message that carries them, before a model call, when
the API rejects the prompt as too long, after a reply, when the model makes no more calls, when a turn loop has
completed, after a compaction. `Pipeline` has one field for each."""

PipelineRole = Literal["agent", "fork"]


@attrs.frozen
class Row:
    """One row of the table: a step at a hook."""

    hook: Hook
    step: str
    """The field of `Steps`."""
    layer: int | None = None
    """None for a step that belongs to no context layer."""
    setting: str | None = None
    """The key that switches the step off; None if it is always on."""
    roles: tuple[PipelineRole, ...] = ("agent", "fork")
    """A step that changes the prefix while the cache is warm is for agents only: forks share the prefix."""


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
"""Steps with a background task, in the order in which they are opened; they are closed in reverse."""


@attrs.frozen
class JobNotices:
    """Step that reports background jobs of the agent's shell that have ended."""

    def add_blocks(self, agent: Agent, _answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """Return one block with a line for each job that has ended since the last message."""
        news = agent.workspace.jobs.take_finished() if agent.workspace.jobs else ()
        return AddedBlocks(blocks=(text_block("\n".join(news)),)) if news else NOTHING


LEVELS = ("block", "compact", "warn")


@attrs.define(eq=False)
class WindowCheck:
    """Step that emits an event when the context reaches a threshold, once until it falls below the threshold."""

    _level: str | None = None

    async def before_call(self, agent: Agent) -> EndReason | None:
        """Emit an event for a newly reached threshold; end the run at the last one."""
        tokens = agent.meter.tokens(agent.conversation)
        thresholds = attrs.asdict(agent.meter.thresholds)
        level = next((level for level in LEVELS if tokens >= thresholds[level]), None)
        if level is not None and level != self._level:
            agent.emit(WindowFilling(level=level, tokens=tokens, threshold=thresholds[level]))  # type: ignore[arg-type]  # one of the three
        self._level = level
        return "blocked" if level == "block" else None


@attrs.frozen(kw_only=True)
class Steps:
    """All steps of one agent; None for a step that the agent does not have, such as hooks without a hook file."""

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
    """Create the pipeline: *steps* in the order of the table, without those whose setting is in *disabled*."""
    rows = [row for row in STEPS if row.setting not in disabled and role in row.roles]
    chosen: dict[str, tuple[Any, ...]] = {
        hook: tuple(step for row in rows if row.hook == hook and (step := getattr(steps, row.step)) is not None)
        for hook in get_args(Hook)
    }
    return Pipeline(**chosen)


def disabled_settings(
    settings: Settings, header: KeyHeader | None = None, *, is_embedded: bool = False
) -> frozenset[str]:
    """Return the settings of the table that are off; *header* is that of the conversation, if it has begun.

    A switch without a value is off with the embedded server, because a script has no reply to calls that it does not
    expect.
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
    """Run the background tasks of *steps* for the duration of the block."""
    async with AsyncExitStack() as stack:
        for name in BACKGROUND:
            if (step := getattr(steps, name)) is not None:
                await stack.enter_async_context(step.open())
        yield


def context_steps(
    settings: LayersSettings, tools: dict[str, Tool], scratch: Path, compaction: CompactionStep | None = None
) -> Steps:
    """Create the steps that work only on an agent's own context; stored results go to files below *scratch*."""
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

"""Layer 4 in the pipeline: a summary replaces the older part before the window is full."""

from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from coterie.agents.events.layer_events import Compacted, LayerFailed
from coterie.agents.hooks.lifecycle_hooks import CompactionHook
from coterie.agents.layers.layer3_session_notes import SessionNotesLayer
from coterie.agents.layers.layer4_compaction.commit import commit_compaction
from coterie.agents.layers.layer4_compaction.pinned_context import PinnedSection
from coterie.agents.layers.layer4_compaction.plan import CompactionJob, CompactionPlan, CompactionSkipped
from coterie.agents.layers.layer4_compaction.rebuild import (
    RebuiltConversation,
    SummaryParts,
    rebuild,
    rebuild_truncated,
)
from coterie.agents.layers.layer4_compaction.restore import newest_files, read_files, read_skills, used_skills
from coterie.agents.layers.layer4_compaction.strategies import (
    LAYER,
    CircuitBreaker,
    summarize_by_model,
    summarize_from_notes,
    truncate_by_rule,
)
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.transcript_records import Trigger
from coterie.agents.loop.model.api_errors import PromptTooLong
from coterie.agents.root_link.job_messages import Pivot
from coterie.agents.tools.tool import RESULTS_DIRECTORY
from coterie.errors import ConfigInvalid
from coterie.memory.compaction.cut_point import last_start
from coterie.memory.compaction.summary_text import block_text
from coterie.memory.layer_settings import CompactionSettings

USER_TEXT_SHARE = 0.2
"""Share of the window that the texts of the user may take."""


@attrs.define(eq=False, kw_only=True)
class CompactionStep:
    """Compacts one agent's conversation: when it is nearly full, when the API finds it too long, or when asked to.

    All that takes time comes first; then the new epoch and its boundary are one record. So a crash, or a cancellation,
    leaves the old state or the new one.
    """

    settings: CompactionSettings = attrs.field(factory=CompactionSettings)
    pinned_sections: Sequence[PinnedSection] = ()
    context: Callable[[], Awaitable[str]] | None = None
    """What the agent is told before its task, read anew."""
    mail: Messaging | None = None
    notes: SessionNotesLayer | None = None
    hook: CompactionHook | None = None
    """Asked before a compaction; None without hooks."""
    _breaker: CircuitBreaker | None = attrs.field(default=None, init=False)

    async def before_call(self, agent: Agent) -> None:
        """Compact if it is time, and no hook objects. Raises `OSError` when it cannot be recorded."""
        is_time = agent.meter.tokens(agent.conversation) >= agent.meter.thresholds.compact
        if is_time and not await self.objection(agent, "threshold"):
            await self.compact(agent, "threshold")

    async def on_overflow(self, agent: Agent, overflow: PromptTooLong) -> bool:
        """Compact because the API finds the conversation too long; False if there is nothing that could leave."""
        await self.objection(agent, "overflow")
        return await self.compact(agent, "overflow", overflow=overflow) is not None

    async def objection(self, agent: Agent, trigger: Trigger) -> str | None:
        """Why a hook does not want a compaction now; None if it may be done."""
        return None if self.hook is None else await self.hook.objection(agent, trigger)

    async def compact(
        self, agent: Agent, trigger: Trigger, pivot: Pivot | None = None, overflow: PromptTooLong | None = None
    ) -> Compacted | None:
        """Let a summary stand for the older part of the conversation, or for the part that *pivot* names.

        Returns what has been told of it; None if there is nothing that could leave, or no summary of what was asked
        for by hand. What could not be had on the way is an event. Raises `OSError` when it cannot be recorded: the run
        must then end.
        """
        began = trio.current_time()
        job = CompactionJob.of(agent, self.settings, trigger, pivot, overflow)
        if not job.messages:
            return None
        chosen = await self._choose(job, self._breaker_of(agent))
        if chosen is None:
            return None
        plan, rebuilt = chosen
        failures = self._breaker_of(agent).failures
        told = commit_compaction(job, plan, rebuilt, self.mail, failures=failures, began=began)
        for step in agent.pipeline.compacted:
            await step.on_compacted(agent, told)
        return told

    def _breaker_of(self, agent: Agent) -> CircuitBreaker:
        """The breaker, as an earlier run left it."""
        if self._breaker is None:
            boundary = agent.transcript.loaded.boundary
            self._breaker = CircuitBreaker(self.settings.failures, 0 if boundary is None else boundary.failures)
        return self._breaker

    async def _choose(
        self, job: CompactionJob, breaker: CircuitBreaker
    ) -> tuple[CompactionPlan, RebuiltConversation] | None:
        """The first way that leads to a conversation that fits; by hand, none without a summary."""
        material = await self._summary_parts(job)
        passed_over: dict[str, str] = {}
        plan = await summarize_from_notes(job, self.notes)
        if isinstance(plan, CompactionPlan):
            rebuilt = await self._rebuild(job, plan, material)
            if rebuilt.tokens <= job.room:
                return plan, rebuilt
            plan = CompactionSkipped(f"with them {rebuilt.tokens:,} tokens would be left, and {job.room:,} may")
        passed_over["notes"] = plan.reason
        plan = await summarize_by_model(job, breaker, self.notes)
        if isinstance(plan, CompactionSkipped):
            if job.trigger == "manual":
                return None
            passed_over["summary"] = plan.reason
            plan = truncate_by_rule(job)
        plan = attrs.evolve(plan, passed_over=passed_over)
        rebuilt = await self._rebuild(job, plan, material)
        if rebuilt.tokens > job.room and job.pivot is None:
            plan = attrs.evolve(plan, start=max(plan.start, last_start(job.messages)))
            rebuilt = await self._truncate(job, plan, material)
        return plan, rebuilt

    async def _rebuild(self, job: CompactionJob, plan: CompactionPlan, material: SummaryParts) -> RebuiltConversation:
        """The conversation by *plan*, with skills and the files that were looked at last if there is room for them."""
        full = await trio.to_thread.run_sync(_with_restored, job, plan, material)
        last = attrs.evolve(full, files=(), skills=full.skills[:1])
        for poorer in (full, attrs.evolve(full, files=()), last, material):
            rebuilt = rebuild(job, plan, poorer)
            if rebuilt.tokens <= job.room:
                break
        return rebuilt

    async def _truncate(self, job: CompactionJob, plan: CompactionPlan, material: SummaryParts) -> RebuiltConversation:
        """The conversation by *plan*, shortened to fit; where the disk refuses what leaves, it stays."""
        directory = job.agent.workspace.scratch / RESULTS_DIRECTORY
        try:
            return await trio.to_thread.run_sync(rebuild_truncated, job, plan, material, directory)
        except OSError as exc:
            job.agent.emit(LayerFailed(layer=LAYER, reason=str(exc)))
            return rebuild(job, plan, material)

    async def _summary_parts(self, job: CompactionJob) -> SummaryParts:
        agent = job.agent
        sections = [
            f"## {standing.heading}\n{text}"
            for standing in self.pinned_sections
            if (text := await self._text(standing, agent))
        ]
        return SummaryParts(
            context=await self._context(job),
            pinned="\n\n".join(sections),
            user_texts=agent.user_texts,
            user_text_room=int(agent.meter.thresholds.effective * USER_TEXT_SHARE),
            where=str(agent.transcript.path),
        )

    async def _context(self, job: CompactionJob) -> str:
        """What the agent is told before its task; as it was told, where that cannot be read now."""
        if self.context is None:
            return ""
        try:
            return await self.context()
        except (ConfigInvalid, OSError) as exc:
            job.agent.emit(LayerFailed(layer=LAYER, reason=str(exc)))
            return block_text(job.messages[0][0].data)

    async def _text(self, standing: PinnedSection, agent: Agent) -> str:
        try:
            return await standing.text(agent)
        except OSError as exc:
            agent.emit(LayerFailed(layer=LAYER, reason=f"{standing.heading}: {exc}"))
            return ""


def _with_restored(job: CompactionJob, plan: CompactionPlan, material: SummaryParts) -> SummaryParts:
    """*material* with what is put back. Blocks on the disk."""
    staying = (*job.messages[: plan.first], *job.messages[plan.start :])
    calls = [segment.data for message in staying for segment in message if segment.block_type == "tool_use"]
    workspace, settings = job.agent.workspace, job.settings
    return attrs.evolve(
        material,
        skills=read_skills(used_skills(workspace, calls), settings),
        files=read_files(newest_files(workspace, calls, settings.files), settings),
    )

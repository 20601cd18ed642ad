"""Layers 3 and 4 in the pipeline: before the window is full, a summary takes the place of what is old."""

from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from coterie.agents.agent import Agent
from coterie.agents.compaction.breaker import LAYER, Breaker
from coterie.agents.compaction.job import Job
from coterie.agents.compaction.plan import NotTaken, Pivot, Plan
from coterie.agents.compaction.rebuilding import Material, Rebuilt, rebuild
from coterie.agents.compaction.restoring import newest_files, read_files, read_skills, used_skills
from coterie.agents.compaction.squeezing import rebuild_squeezed
from coterie.agents.compaction.taking import take
from coterie.agents.compaction.ways import by_model, by_notes, by_rule
from coterie.agents.conversation.records import Trigger
from coterie.agents.errors import ConfigInvalid
from coterie.agents.events import Compacted, LayerFailed
from coterie.agents.hooks.compacting import AskBeforeCompaction
from coterie.agents.layers.mail import DeliverMail
from coterie.agents.layers.notes import KeepNotes
from coterie.agents.layers.recall import Recall
from coterie.agents.overflow import Overflow
from coterie.agents.standing import Standing
from coterie.agents.tools.tool import RESULTS_DIRECTORY
from coterie.memory.compaction.cut import last_start
from coterie.memory.compaction.limits import CompactionLimits
from coterie.memory.compaction.readable import readable


@attrs.define(eq=False, kw_only=True)
class CompactContext:
    """Compacts one agent's conversation: when it is nearly full, when the API finds it too long, or when asked to.

    All that takes time comes first; then the new epoch and its boundary are one record. So a crash, or a cancellation,
    leaves the old state or the new one.
    """

    limits: CompactionLimits = attrs.field(factory=CompactionLimits)
    standings: Sequence[Standing] = ()
    context: Callable[[], Awaitable[str]] | None = None
    """What the agent is told before its task, read anew."""
    mail: DeliverMail | None = None
    notes: KeepNotes | None = None
    recall: Recall | None = None
    hooks: AskBeforeCompaction | None = None
    _breaker: Breaker | None = attrs.field(default=None, init=False)

    async def prepare(self, agent: Agent) -> None:
        """Compact if it is time, and no hook objects. Raises `OSError` when it cannot be recorded."""
        is_time = agent.meter.tokens(agent.conversation) >= agent.meter.thresholds.compact
        if is_time and not await self.objection(agent, "threshold"):
            await self.compact(agent, "threshold")

    async def recover(self, agent: Agent, overflow: Overflow) -> bool:
        """Compact because the API finds the conversation too long; False if there is nothing that could leave."""
        await self.objection(agent, "overflow")
        return await self.compact(agent, "overflow", overflow=overflow) is not None

    async def objection(self, agent: Agent, trigger: Trigger) -> str | None:
        """Why a hook does not want a compaction now; None if it may be done."""
        return None if self.hooks is None else await self.hooks.objection(agent, trigger)

    async def compact(
        self, agent: Agent, trigger: Trigger, pivot: Pivot | None = None, overflow: Overflow | None = None
    ) -> Compacted | None:
        """Let a summary stand for the older part of the conversation, or for the part that *pivot* names.

        Returns what has been told of it; None if there is nothing that could leave, or no summary of what was asked
        for by hand. What could not be had on the way is an event. Raises `OSError` when it cannot be recorded: the run
        must then end.
        """
        began = trio.current_time()
        job = Job.of(agent, self.limits, trigger, pivot, overflow)
        if not job.messages:
            return None
        chosen = await self._choose(job, self._breaker_of(agent))
        if chosen is None:
            return None
        plan, rebuilt = chosen
        failures = self._breaker_of(agent).failures
        told = take(job, plan, rebuilt, self.mail, failures=failures, began=began)
        if self.notes is not None:
            self.notes.compacted()
        if self.recall is not None:
            self.recall.compacted()
        if self.hooks is not None:
            await self.hooks.compacted(agent, told)
        return told

    def _breaker_of(self, agent: Agent) -> Breaker:
        """The breaker, as an earlier run left it."""
        if self._breaker is None:
            boundary = agent.transcript.loaded.boundary
            self._breaker = Breaker(self.limits.failures, 0 if boundary is None else boundary.failures)
        return self._breaker

    async def _choose(self, job: Job, breaker: Breaker) -> tuple[Plan, Rebuilt] | None:
        """The first way that leads to a conversation that fits; by hand, none without a summary."""
        material = await self._material(job)
        passed_over: dict[str, str] = {}
        plan = await by_notes(job, self.notes)
        if isinstance(plan, Plan):
            rebuilt = await self._rebuild(job, plan, material)
            if rebuilt.tokens <= job.room:
                return plan, rebuilt
            plan = NotTaken(f"with them {rebuilt.tokens:,} tokens would be left, and {job.room:,} may")
        passed_over["notes"] = plan.reason
        plan = await by_model(job, breaker, self.notes)
        if isinstance(plan, NotTaken):
            if job.trigger == "manual":
                return None
            passed_over["summary"] = plan.reason
            plan = by_rule(job)
        plan = attrs.evolve(plan, passed_over=passed_over)
        rebuilt = await self._rebuild(job, plan, material)
        if rebuilt.tokens > job.room and job.pivot is None:
            plan = attrs.evolve(plan, start=max(plan.start, last_start(job.messages)))
            rebuilt = await self._squeeze(job, plan, material)
        return plan, rebuilt

    async def _rebuild(self, job: Job, plan: Plan, material: Material) -> Rebuilt:
        """The conversation by *plan*, with skills and the files that were looked at last if there is room for them."""
        full = await trio.to_thread.run_sync(_with_restored, job, plan, material)
        last = attrs.evolve(full, files=(), skills=full.skills[:1])
        for poorer in (full, attrs.evolve(full, files=()), last, material):
            rebuilt = rebuild(job, plan, poorer)
            if rebuilt.tokens <= job.room:
                break
        return rebuilt

    async def _squeeze(self, job: Job, plan: Plan, material: Material) -> Rebuilt:
        """The conversation by *plan*, shortened to fit; where the disk refuses what leaves, it stays."""
        directory = job.agent.workspace.scratch / RESULTS_DIRECTORY
        try:
            return await trio.to_thread.run_sync(rebuild_squeezed, job, plan, material, directory)
        except OSError as exc:
            job.agent.tell(LayerFailed(layer=LAYER, reason=str(exc)))
            return rebuild(job, plan, material)

    async def _material(self, job: Job) -> Material:
        agent = job.agent
        sections = [
            f"## {standing.heading}\n{text}"
            for standing in self.standings
            if (text := await self._text(standing, agent))
        ]
        return Material(
            context=await self._context(job),
            standing="\n\n".join(sections),
            words=agent.words,
            words_room=int(agent.meter.thresholds.effective * job.limits.words),
            where=str(agent.transcript.path),
        )

    async def _context(self, job: Job) -> str:
        """What the agent is told before its task; as it was told, where that cannot be read now."""
        if self.context is None:
            return ""
        try:
            return await self.context()
        except (ConfigInvalid, OSError) as exc:
            job.agent.tell(LayerFailed(layer=LAYER, reason=str(exc)))
            return readable(job.messages[0][0].data)

    async def _text(self, standing: Standing, agent: Agent) -> str:
        try:
            return await standing.text(agent)
        except OSError as exc:
            agent.tell(LayerFailed(layer=LAYER, reason=f"{standing.heading}: {exc}"))
            return ""


def _with_restored(job: Job, plan: Plan, material: Material) -> Material:
    """*material* with what is put back. Blocks on the disk."""
    staying = (*job.messages[: plan.first], *job.messages[plan.start :])
    calls = [segment.data for message in staying for segment in message if segment.block_type == "tool_use"]
    workspace, limits = job.agent.workspace, job.limits
    return attrs.evolve(
        material,
        skills=read_skills(used_skills(workspace, calls), limits),
        files=read_files(newest_files(workspace, calls, limits.files), limits),
    )

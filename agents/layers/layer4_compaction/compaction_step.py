"""Layer 4: compaction, which replaces older messages by a summary before the context window is full."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import chain

import attrs
import trio

from coterie.agents.events.layer_events import Compacted
from coterie.agents.hooks.lifecycle_hooks import CompactionHook
from coterie.agents.layers.layer3_session_notes import SessionNotesLayer
from coterie.agents.layers.layer4_compaction.pinned_context import PinnedSection, section_text
from coterie.agents.layers.layer4_compaction.plan import CompactionJob, CompactionPlan
from coterie.agents.layers.layer4_compaction.rebuild import (
    RebuiltConversation,
    SummaryParts,
    newest_files,
    read_files,
    read_skills,
    rebuild,
    rebuild_truncated,
    used_skills,
)
from coterie.agents.layers.layer4_compaction.strategies import (
    LAYER,
    CircuitBreaker,
    summarize_by_model,
    summarize_from_notes,
    truncate_by_rule,
)
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.cache_markers import MarkerHistory
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.transcript_records import Boundary, Trigger
from coterie.agents.loop.model.api_errors import PromptTooLong
from coterie.agents.root_link.job_messages import Pivot
from coterie.agents.tools.tool import RESULTS_DIRECTORY
from coterie.errors import ConfigInvalid
from coterie.memory.compaction.cut_point import last_start
from coterie.memory.compaction.fidelity import TURNS, find_lost_terms
from coterie.memory.compaction.summary_text import block_text, message_texts
from coterie.memory.layer_settings import CompactionSettings

LISTED = 200
"""Maximum number of lost terms (paths, names, numbers missing in the new context) in a `Compacted` event."""
SEARCHED = 8_000
"""Number of first characters searched for lost terms in each of the last removed messages; later ones are ignored."""


def commit_compaction(
    job: CompactionJob,
    plan: CompactionPlan,
    rebuilt: RebuiltConversation,
    mail: Messaging | None,
    *,
    failures: int,
    began: float,
) -> Compacted:
    """Replace the agent's conversation by *rebuilt*, write it to the transcript, and emit and return the event.

    *failures* is the number of summaries that failed in a row; *began* is the start of the job in trio's time. If the
    agent has work, received mail then follows as a separate message. Raises `OSError` on write errors.
    """
    agent, gone = job.agent, job.messages[plan.first : plan.start]
    unacknowledged = [] if mail is None else list(mail.unacknowledged)
    agent.conversation.rewrite(rebuilt.messages)
    _carry_markers(agent.conversation, plan.first)
    boundary = Boundary(
        trigger=job.trigger,
        by=plan.by,
        turn=agent.turn,
        tokens_before=job.tokens,
        tokens_after=rebuilt.tokens,
        left=len(gone),
        kept=len(job.messages) - len(gone),
        parts=list(rebuilt.parts),
        at_message=rebuilt.at_message,
        mail=[str(id_) for id_ in unacknowledged],
        failures=failures,
    )
    agent.transcript.record(agent.conversation, boundary=boundary)
    agent.announced.append("compaction")
    event = _compacted_event(job, plan, rebuilt, began)
    agent.emit(event)
    if mail is not None and agent.has_work:  # otherwise mail wakes the idle agent as always
        mail.deliver(agent)
    return event


def _carry_markers(conversation: Conversation, first: int) -> None:
    """Mark the last user block of the *first* unchanged messages as the end of a prompt cache entry to read again."""
    if not first:
        return
    prefix, previous, number = conversation.prefix, None, 0
    for index in range(prefix.prompt_length, len(prefix)):
        number += prefix[index].opens_message
        if number > first:
            break
        if prefix[index].role == "user" and prefix[index].is_markable:
            previous = index
    conversation.marks = MarkerHistory(previous=previous)


def _compacted_event(job: CompactionJob, plan: CompactionPlan, rebuilt: RebuiltConversation, began: float) -> Compacted:
    gone = job.messages[plan.first : plan.start]
    before = (text[:SEARCHED] for text in message_texts(chain.from_iterable(gone[-2 * TURNS :])))
    after = "\n".join(block_text(data) for _, blocks in rebuilt.messages for data in blocks)
    lost = find_lost_terms(before, after)
    return Compacted(
        trigger=job.trigger,
        by=plan.by,
        passed_over=dict(plan.passed_over),
        tokens_before=job.tokens,
        tokens_after=rebuilt.tokens,
        left=len(gone),
        kept=len(job.messages) - len(gone),
        words=len(job.agent.user_texts),
        words_added=rebuilt.user_texts_added,
        restored=[file.name for file in rebuilt.files],
        skills=[skill.name for skill in rebuilt.skills],
        dropped=lost[:LISTED],
        dropped_count=len(lost),
        seconds=round(trio.current_time() - began, 6),
        cost_usd=format(plan.cost, "f"),
        where=str(job.agent.transcript.path),
    )


USER_TEXT_SHARE = 0.2
"""Maximum fraction of the usable context window for the user's texts that a compaction inserts again."""


@attrs.define(eq=False, kw_only=True)
class CompactionStep:
    """Pipeline step that replaces older messages by a summary: if the context is nearly full, too long, or on request.

    The summary is created first. Then the new conversation is written to the transcript as one record, so that a crash
    or cancellation leaves either the old conversation or the new one.
    """

    settings: CompactionSettings = attrs.field(factory=CompactionSettings)
    pinned_sections: Sequence[PinnedSection] = ()
    context: Callable[[], Awaitable[str]] | None = None
    """Function that reads anew the text before the agent's task (instructions, memory index); None for no such text."""
    mail: Messaging | None = None
    notes: SessionNotesLayer | None = None
    hook: CompactionHook | None = None
    """Runs the user's hooks, which can object to a compaction; None if the agent has no hooks."""
    _breaker: CircuitBreaker | None = attrs.field(default=None, init=False)

    async def before_call(self, agent: Agent) -> None:
        """Compact the conversation from the token threshold `compact` on, unless a hook objects. Raises `OSError`."""
        is_time = agent.meter.tokens(agent.conversation) >= agent.meter.thresholds.compact
        if is_time and not await self.objection(agent, "threshold"):
            await self.compact(agent, "threshold")

    async def on_overflow(self, agent: Agent, overflow: PromptTooLong) -> bool:
        """Compact after the API rejected the prompt as too long, even if a hook objects; False if nothing changed."""
        await self.objection(agent, "overflow")
        return await self.compact(agent, "overflow", overflow=overflow) is not None

    async def objection(self, agent: Agent, trigger: Trigger) -> str | None:
        """Run the user's PreCompact hooks; return their objection to a compaction, or None if it may proceed."""
        return None if self.hook is None else await self.hook.objection(agent, trigger)

    async def compact(
        self, agent: Agent, trigger: Trigger, pivot: Pivot | None = None, overflow: PromptTooLong | None = None
    ) -> Compacted | None:
        """Replace older messages of *agent*, or those that *pivot* selects, by a summary; run the `compacted` steps.

        Returns the emitted event; None if there are no messages, or if a manual compaction got no summary. A failed
        call for a summary becomes an event. Raises `OSError` if the transcript cannot be written; the run must end.
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
        event = commit_compaction(job, plan, rebuilt, self.mail, failures=failures, began=began)
        for step in agent.pipeline.compacted:
            await step.on_compacted(agent, event)
        return event

    def _breaker_of(self, agent: Agent) -> CircuitBreaker:
        """Return the counter of failed summaries; the first call restores the count from the agent's transcript."""
        if self._breaker is None:
            boundary = agent.transcript.loaded.boundary
            self._breaker = CircuitBreaker(self.settings.failures, 0 if boundary is None else boundary.failures)
        return self._breaker

    async def _choose(
        self, job: CompactionJob, breaker: CircuitBreaker
    ) -> tuple[CompactionPlan, RebuiltConversation] | None:
        """Get a summary from notes, model or rule; return plan and conversation; None if a manual job got none."""
        parts = await self._summary_parts(job)
        passed_over: dict[str, str] = {}
        plan = await summarize_from_notes(job, self.notes)
        if isinstance(plan, CompactionPlan):
            rebuilt = await self._rebuild(job, plan, parts)
            if rebuilt.tokens <= job.room:
                return plan, rebuilt
            plan = f"with the notes as summary the context has {rebuilt.tokens:,} tokens; at most {job.room:,} fit"
        passed_over["notes"] = plan
        plan = await summarize_by_model(job, breaker, self.notes)
        if isinstance(plan, str):
            if job.trigger == "manual":
                return None
            passed_over["summary"] = plan
            plan = truncate_by_rule(job)
        plan = attrs.evolve(plan, passed_over=passed_over)
        rebuilt = await self._rebuild(job, plan, parts)
        if rebuilt.tokens > job.room and job.pivot is None:
            plan = attrs.evolve(plan, start=max(plan.start, last_start(job.messages)))
            directory = job.agent.workspace.scratch / RESULTS_DIRECTORY
            try:
                rebuilt = await trio.to_thread.run_sync(rebuild_truncated, job, plan, parts, directory)
            except OSError as exc:  # a whole text cannot be stored in a file
                job.agent.report_failure(LAYER, exc)
                rebuilt = rebuild(job, plan, parts)
        return plan, rebuilt

    async def _rebuild(self, job: CompactionJob, plan: CompactionPlan, parts: SummaryParts) -> RebuiltConversation:
        """Return the conversation after *plan*, with used skills and recently read files as far as there is room."""
        full = await trio.to_thread.run_sync(_with_restored, job, plan, parts)
        last = attrs.evolve(full, files=(), skills=full.skills[:1])
        for candidate in (full, attrs.evolve(full, files=()), last, parts):
            rebuilt = rebuild(job, plan, candidate)
            if rebuilt.tokens <= job.room:
                break
        return rebuilt

    async def _summary_parts(self, job: CompactionJob) -> SummaryParts:
        agent, context = job.agent, ""
        try:
            context = "" if self.context is None else await self.context()
        except (ConfigInvalid, OSError) as exc:
            agent.report_failure(LAYER, exc)
            context = block_text(job.messages[0][0].data)  # that of the first message
        sections = [
            f"## {section.heading}\n{text}"
            for section in self.pinned_sections
            if (text := await section_text(section, agent, LAYER))
        ]
        return SummaryParts(
            context=context,
            pinned="\n\n".join(sections),
            user_texts=agent.user_texts,
            user_text_room=int(agent.meter.thresholds.effective * USER_TEXT_SHARE),
            where=str(agent.transcript.path),
        )


def _with_restored(job: CompactionJob, plan: CompactionPlan, parts: SummaryParts) -> SummaryParts:
    """Return *parts* with the texts of used skills and recently read files that the model is to see again. Blocks."""
    staying = (*job.messages[: plan.first], *job.messages[plan.start :])
    calls = [segment.data for message in staying for segment in message if segment.block_type == "tool_use"]
    workspace, settings = job.agent.workspace, job.settings
    return attrs.evolve(
        parts,
        skills=read_skills(used_skills(workspace, calls), settings),
        files=read_files(newest_files(workspace, calls, settings.files), settings),
    )

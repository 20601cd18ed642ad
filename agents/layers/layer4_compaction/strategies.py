"""Compaction strategies, cheapest first: session notes, a model's summary, or truncation by a rule."""

import attrs
import trio

from coterie.agents.errors import BudgetSpent, ControlLost, ModelError, ReplyMalformed
from coterie.agents.events.layer_events import BreakerTripped
from coterie.agents.layers.layer3_session_notes import NotesState, SessionNotesLayer
from coterie.agents.layers.layer4_compaction.plan import CompactionJob, CompactionPlan, CompactionSkipped
from coterie.agents.layers.layer4_compaction.rebuild import earlier_summaries
from coterie.agents.layers.layer4_compaction.summarize import ConversationSummarizer
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.token_estimate import TEXT_BYTES
from coterie.agents.loop.conversation.transcript_records import Way
from coterie.memory.compaction.cut_point import choose_start, first_unknown
from coterie.memory.compaction.result_storage import truncate_text
from coterie.memory.errors import SummaryUnusable

LAYER = "compaction"


@attrs.define(eq=False)
class CircuitBreaker:
    """Counter of consecutive failed summaries. An open breaker stays open for the session, also after a resume."""

    limit: int
    failures: int = 0

    @property
    def is_open(self) -> bool:
        """True if no model may be called for a summary."""
        return self.failures >= self.limit

    def record_failure(self, agent: Agent, reason: str) -> None:
        """Count a failure and emit its event; the failure that reaches the limit trips the breaker."""
        self.failures += 1
        agent.report_failure(LAYER, reason)
        if self.failures == self.limit:
            agent.emit(BreakerTripped(failures=self.failures, reason=reason))


NOTES_WAIT = 15.0
"""Seconds to wait for a running update of the notes."""


async def summarize_from_notes(
    job: CompactionJob, notes: SessionNotesLayer | None
) -> CompactionPlan | CompactionSkipped:
    """Use the session notes as the summary, without a model call; turns that the notes do not cover stay.

    Skipped if there are no notes, or if too many turns would have to stay.
    """
    if notes is None or not job.settings.by_notes:
        return CompactionSkipped("switched off")
    if job.pivot is not None:
        return CompactionSkipped("the request selects only a part of the conversation")
    state = await _notes_state(notes)
    if state is None:
        return CompactionSkipped(f"there are no notes: {notes.delay}")
    behind = job.agent.turn - state.turn
    unknown = first_unknown(job.messages, behind)
    start = choose_start(job.messages, job.sizes, job.settings, unknown)
    if start is None:
        turns = "the last turn" if behind == 1 else f"the last {behind} turns"
        size = f"{sum(job.sizes[unknown:]):,} tokens; at most {job.settings.keep_most:,} may stay"
        return CompactionSkipped(f"the notes do not cover {turns}, {size}: {notes.delay}")
    return CompactionPlan(by="notes", summary=state.text, start=start)


async def summarize_by_model(
    job: CompactionJob, breaker: CircuitBreaker, notes: SessionNotesLayer | None
) -> CompactionPlan | CompactionSkipped:
    """Let the model write the summary; a failure also emits an event.

    Errors and corrections from the session notes are appended if the summary does not contain them.
    """
    if not job.settings.by_model:
        return CompactionSkipped("switched off")
    if breaker.is_open:
        return CompactionSkipped(f"the last {breaker.failures} summaries failed")
    span, summarizer = job.span(), ConversationSummarizer(job.agent, job.messages, job.sizes)
    try:
        summary = await summarizer.summarize(span.scope, job.overflow)
    except (SummaryUnusable, ModelError, ReplyMalformed) as exc:
        breaker.record_failure(job.agent, str(exc))
        return CompactionSkipped(str(exc))
    except (BudgetSpent, ControlLost) as exc:
        # Not counted as a failed summary: other code handles a spent budget and a lost channel.
        job.agent.report_failure(LAYER, exc)
        return CompactionSkipped(str(exc))
    breaker.failures = 0
    state = None if notes is None else await _notes_state(notes)
    if state is not None and state.errors and state.errors not in summary:
        summary += f"\n\nErrors & Corrections, from the notes:\n{state.errors}"
    by: Way = "chunks" if summarizer.parts > 1 else "summary"
    return CompactionPlan(by=by, summary=summary, first=span.first, start=span.start, cost=summarizer.cost)


async def _notes_state(notes: SessionNotesLayer) -> NotesState | None:
    with trio.move_on_after(NOTES_WAIT):
        await notes.wait_until_written()
    return await notes.current()


def truncate_by_rule(job: CompactionJob) -> CompactionPlan:
    """Remove the oldest messages without a summary of them; keep earlier summaries and as many messages as fit."""
    span = job.span(attrs.evolve(job.settings, keep_least=job.room // 2, keep_most=job.room // 2))
    leaving = job.messages[span.first : span.start]
    earlier = truncate_text("\n\n".join(earlier_summaries(leaving)), job.room // 8 * TEXT_BYTES)
    summary = f"{earlier}\n\n({len(leaving)} messages were removed.)".strip()
    return CompactionPlan(by="rule", summary=summary, first=span.first, start=span.start)

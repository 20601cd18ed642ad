"""Compaction strategies, the cheapest first: session notes, a model's summary, or a rule."""

import attrs
import trio

from coterie.agents.errors import BudgetSpent, ControlLost, ModelError, ReplyMalformed
from coterie.agents.events.layer_events import BreakerTripped, LayerFailed
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
    """Counts failures in a row. It stays open for the rest of the session, over a resume as well."""

    limit: int
    failures: int = 0

    @property
    def is_open(self) -> bool:
        """Whether no model may be asked."""
        return self.failures >= self.limit

    def record_failure(self, agent: Agent, reason: str) -> None:
        """Count a failure, and tell of it; the last one trips the breaker."""
        self.failures += 1
        agent.emit(LayerFailed(layer=LAYER, reason=reason))
        if self.failures == self.limit:
            agent.emit(BreakerTripped(failures=self.failures, reason=reason))

    def record_success(self) -> None:
        """A summary has come: the count begins anew."""
        self.failures = 0


NOTES_WAIT = 15.0
"""Seconds for which an update of the notes that is under way is waited for."""


async def summarize_from_notes(
    job: CompactionJob, notes: SessionNotesLayer | None
) -> CompactionPlan | CompactionSkipped:
    """The notes as summary, without a call; what they do not know of must stay.

    Not when there are none, or when they are so far behind that too much would have to stay.
    """
    if notes is None or not job.settings.by_notes:
        return CompactionSkipped("switched off")
    if job.pivot is not None:
        return CompactionSkipped("only a part was asked for")
    stand = await _notes_state(notes)
    if stand is None:
        return CompactionSkipped(f"there are none: {notes.delay}")
    behind = job.agent.turn - stand.turn
    unknown = first_unknown(job.messages, behind)
    start = choose_start(job.messages, job.sizes, job.settings, unknown)
    if start is None:
        turns = "the last turn" if behind == 1 else f"the last {behind} turns"
        size = f"{sum(job.sizes[unknown:]):,} tokens, of which {job.settings.keep_most:,} may stay"
        return CompactionSkipped(f"they do not know of {turns}, {size}: {notes.delay}")
    return CompactionPlan(by="notes", summary=stand.text, start=start)


async def summarize_by_model(
    job: CompactionJob, breaker: CircuitBreaker, notes: SessionNotesLayer | None
) -> CompactionPlan | CompactionSkipped:
    """A summary of the model; where there is none to be had, an event says so too.

    Known failures that the notes hold are kept beside it, whatever it says.
    """
    if not job.settings.by_model:
        return CompactionSkipped("switched off")
    if breaker.is_open:
        return CompactionSkipped(f"{breaker.failures} summaries in a row had failed")
    span, summariser = job.span(), ConversationSummarizer(job.agent, job.messages, job.sizes)
    try:
        summary = await summariser.summarize(span.scope, job.overflow)
    except (SummaryUnusable, ModelError, ReplyMalformed) as exc:
        breaker.record_failure(job.agent, str(exc))
        return CompactionSkipped(str(exc))
    except (BudgetSpent, ControlLost) as exc:
        # No fault of the summary: whoever waits for the budget, or ends the agent, will see to it.
        job.agent.emit(LayerFailed(layer=LAYER, reason=str(exc)))
        return CompactionSkipped(str(exc))
    breaker.record_success()
    stand = None if notes is None else await _notes_state(notes)
    if stand is not None and stand.errors and stand.errors not in summary:
        summary += f"\n\nErrors & Corrections, from the notes:\n{stand.errors}"
    by: Way = "chunks" if summariser.parts > 1 else "summary"
    return CompactionPlan(by=by, summary=summary, first=span.first, start=span.start, cost=summariser.cost)


async def _notes_state(notes: SessionNotesLayer) -> NotesState | None:
    with trio.move_on_after(NOTES_WAIT):
        await notes.wait_until_written()
    return await notes.current()


def truncate_by_rule(job: CompactionJob) -> CompactionPlan:
    """No summary: the oldest leave, and as much stays as there is room for, earlier summaries among it."""
    span = job.span(attrs.evolve(job.settings, keep_least=job.room // 2, keep_most=job.room // 2))
    leaving = job.messages[span.first : span.start]
    earlier = truncate_text("\n\n".join(earlier_summaries(leaving)), job.room // 8 * TEXT_BYTES)
    summary = f"{earlier}\n\n({len(leaving)} messages left.)".strip()
    return CompactionPlan(by="rule", summary=summary, first=span.first, start=span.start)

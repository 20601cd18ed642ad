"""The ways to a summary, the cheapest first: the session notes, the model, or none at all."""

import attrs
import trio

from coterie.agents.compaction.breaker import LAYER, Breaker
from coterie.agents.compaction.job import Job
from coterie.agents.compaction.plan import NotTaken, Plan
from coterie.agents.compaction.rebuilding import earlier_summaries
from coterie.agents.compaction.summarising import Summariser
from coterie.agents.conversation.records import Way
from coterie.agents.errors import BudgetSpent, ControlLost, ModelError, ReplyMalformed
from coterie.agents.events import LayerFailed
from coterie.agents.layers.notes import KeepNotes, NotesStand
from coterie.agents.tokens import TEXT_BYTES
from coterie.memory.compaction.cut import choose_start, first_unknown
from coterie.memory.errors import SummaryUnusable
from coterie.memory.tool_results import beginning

NOTES_WAIT = 15.0
"""Seconds for which an update of the notes that is under way is waited for."""


async def by_notes(job: Job, notes: KeepNotes | None) -> Plan | NotTaken:
    """The notes as summary, without a call; what they do not know of must stay.

    Not when there are none, or when they are so far behind that too much would have to stay.
    """
    if notes is None or not job.limits.by_notes:
        return NotTaken("switched off")
    if job.pivot is not None:
        return NotTaken("only a part was asked for")
    stand = await _stand(notes)
    if stand is None:
        return NotTaken(f"there are none: {notes.delay}")
    behind = job.agent.turn - stand.turn
    unknown = first_unknown(job.messages, behind)
    start = choose_start(job.messages, job.sizes, job.limits.keep, unknown)
    if start is None:
        turns = "the last turn" if behind == 1 else f"the last {behind} turns"
        size = f"{sum(job.sizes[unknown:]):,} tokens, of which {job.limits.keep.most:,} may stay"
        return NotTaken(f"they do not know of {turns}, {size}: {notes.delay}")
    return Plan(by="notes", summary=stand.text, start=start)


async def by_model(job: Job, breaker: Breaker, notes: KeepNotes | None) -> Plan | NotTaken:
    """A summary of the model; where there is none to be had, an event says so too.

    Known failures that the notes hold are kept beside it, whatever it says.
    """
    if not job.limits.by_model:
        return NotTaken("switched off")
    if breaker.is_open:
        return NotTaken(f"{breaker.failures} summaries in a row had failed")
    span, summariser = job.span(), Summariser(job.agent, job.messages, job.sizes)
    try:
        summary = await summariser.summarise(span.scope, job.overflow)
    except (SummaryUnusable, ModelError, ReplyMalformed) as exc:
        breaker.failed(job.agent, str(exc))
        return NotTaken(str(exc))
    except (BudgetSpent, ControlLost) as exc:
        # No fault of the summary: whoever waits for the budget, or ends the agent, will see to it.
        job.agent.tell(LayerFailed(layer=LAYER, reason=str(exc)))
        return NotTaken(str(exc))
    breaker.worked()
    stand = None if notes is None else await _stand(notes)
    if stand is not None and stand.errors and stand.errors not in summary:
        summary += f"\n\nErrors & Corrections, from the notes:\n{stand.errors}"
    by: Way = "chunks" if summariser.parts > 1 else "summary"
    return Plan(by=by, summary=summary, first=span.first, start=span.start, cost=summariser.cost)


async def _stand(notes: KeepNotes) -> NotesStand | None:
    with trio.move_on_after(NOTES_WAIT):
        await notes.settled()
    return await notes.current()


def by_rule(job: Job) -> Plan:
    """No summary: the oldest leave, and as much stays as there is room for, earlier summaries among it."""
    span = job.span(attrs.evolve(job.limits.keep, least=job.room // 2, most=job.room // 2))
    leaving = job.messages[span.first : span.start]
    earlier = beginning("\n\n".join(earlier_summaries(leaving)), job.room // 8 * TEXT_BYTES)
    summary = f"{earlier}\n\n({len(leaving)} messages left.)".strip()
    return Plan(by="rule", summary=summary, first=span.first, start=span.start)

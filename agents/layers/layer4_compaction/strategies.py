"""Ways to get the summary of a compaction, cheapest first: session notes, a model's summary, or a rule."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

import attrs
import trio

from coterie.agents.errors import BudgetSpent, ControlLost, ModelError, ModelRefusedRequest, ReplyMalformed
from coterie.agents.events.layer_events import BreakerTripped
from coterie.agents.layers.layer3_session_notes import NotesState, SessionNotesLayer
from coterie.agents.layers.layer4_compaction.plan import ALL, CompactionJob, CompactionPlan
from coterie.agents.layers.layer4_compaction.rebuild import earlier_summaries
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.token_estimate import SUMMARY_RESERVE, TEXT_BYTES, estimate_block
from coterie.agents.loop.conversation.transcript_records import Way
from coterie.agents.loop.forks.helper import run_helper
from coterie.agents.loop.model.api_errors import PromptTooLong
from coterie.agents.loop.model.reply import Reply
from coterie.agents.prompts import render
from coterie.memory.compaction.cut_point import Messages, choose_start, first_unknown, oldest_rounds
from coterie.memory.compaction.result_clearing import clear_results
from coterie.memory.compaction.result_storage import truncate_text
from coterie.memory.compaction.summary_text import message_texts, parse_summary
from coterie.memory.errors import SummaryUnusable

LAYER = "compaction"
"""Name of compaction in events, of its prompt file, and of the purpose of its model calls."""


@attrs.define(eq=False)
class CircuitBreaker:
    """Counter of an agent's summaries by a model that failed in a row. At *limit*, no model is asked for one again."""

    limit: int
    failures: int = 0

    @property
    def is_open(self) -> bool:
        """True if `limit` summaries failed in a row, so that no model may be asked for another summary."""
        return self.failures >= self.limit


TRIES = 3
"""Maximum number of retries of a summary request that is too long; each retry omits more of the oldest messages."""
SHARE = 0.2
"""Fraction of the tokens that each retry omits in addition, if the API does not report the excess of the prompt."""
WHOLE = frozenset({"end_turn", "stop_sequence"})
LEFT_OUT = "The oldest part of this conversation was removed here, because it was too long."


@attrs.define(eq=False)
class ConversationSummarizer:
    """Creates one summary of an agent's conversation with model calls, and adds up their cost."""

    agent: Agent
    messages: Messages
    sizes: Sequence[int]
    """Estimated tokens of each message in `messages`."""
    cost: Decimal = Decimal(0)
    parts: int = 1
    """Number of parts of the conversation that were summarised by separate calls; 1 for the conversation as a whole."""

    async def summarize(self, scope: str = ALL, overflow: PromptTooLong | None = None) -> str:
        """Let the model summarise the part that *scope* describes; if too long, without old messages, then in pieces.

        *overflow* is set if the API rejected the conversation. Raises `SummaryUnusable`, and as `ModelClient.ask` does.
        """
        for attempt in range(1 + TRIES):
            try:
                if attempt == 0 and overflow is None:
                    return self._read(await self._ask_whole(scope))
                start = oldest_rounds(self.messages, self.sizes, _to_leave(sum(self.sizes), attempt, overflow))
                if start == len(self.messages):
                    break
                return self._read(await self._ask_shortened(scope, start))
            except ModelRefusedRequest as error:
                overflow = PromptTooLong.read(error)
                if overflow is None:
                    raise
        return await self._in_parts()

    async def _ask_whole(self, scope: str) -> Reply:
        """Ask a helper (short fork of the agent) for a summary; it reads most of the prompt from the agent's cache."""
        return await run_helper(
            self.agent,
            render(LAYER, scope=scope),
            LAYER,
            max_turns=2,
            max_tokens=SUMMARY_RESERVE,
            until=lambda reply, _: self._count(reply),
        )

    async def _ask_shortened(self, scope: str, start: int) -> Reply:
        """Ask for a summary of only the messages from index *start* on, which are not in the prompt cache."""
        shorter = self.agent.conversation.fork()
        segments = [segment for message in self.messages[start:] for segment in message]
        shorter.rewrite([("user", [text_block(LEFT_OUT)]), *clear_results(segments, has_changed=True)])
        shorter.append("user", [text_block(render(LAYER, scope=scope))])
        return await self._ask(shorter)

    async def _in_parts(self) -> str:
        """Summarise the conversation part by part: each call gets the summary so far. Return the last summary."""
        summary = "(none: this is the first part)"
        # A third, because the estimate of plain text may be too low and the earlier summary needs room too.
        size = self.agent.meter.thresholds.effective // 3 * TEXT_BYTES
        self.parts = 0
        for part in _pieces(message_texts(segment for message in self.messages for segment in message), size):
            self.parts += 1
            alone = Conversation.begin(attrs.evolve(self.agent.conversation.header, context_management=None))
            alone.append("user", [text_block(render("compaction_part", earlier=summary, part=part))])
            summary = self._read(await self._ask(alone))
        return summary

    async def _ask(self, conversation: Conversation) -> Reply:
        agent = self.agent
        max_tokens = min(SUMMARY_RESERVE, agent.model.max_output)
        tokens = sum(estimate_block(segment.data) for segment in conversation.segments)
        rendered = conversation.render(max_tokens=max_tokens, ttl=agent.ttl, helper=True)
        request = agent.request(conversation, rendered, prompt_tokens=tokens, purpose=LAYER)
        reply = await agent.client.ask(request)
        agent.request_counts[LAYER] += 1
        self._count(reply)
        return reply

    def _count(self, reply: Reply) -> bool:
        self.cost += self.agent.model.cost(reply.usage)
        return False

    def _read(self, reply: Reply) -> str:
        summary = parse_summary(reply.text, is_whole=reply.stop_reason in WHOLE)
        tokens = estimate_block(text_block(summary))
        if tokens > (most := self.agent.meter.thresholds.compact // 3):
            raise SummaryUnusable(f"the summary has about {tokens:,} tokens, over {most:,}; Coterie drops it")
        return summary


def _to_leave(tokens: int, attempt: int, overflow: PromptTooLong | None) -> int:
    """Return how many tokens retry *attempt* must omit: the reported excess and a margin, or a share of *tokens*."""
    if overflow is None or overflow.actual is None or overflow.most is None:
        return int(tokens * SHARE * max(1, attempt))
    # The margin covers the error of the estimate and the summary request itself.
    share = 1 - overflow.most / overflow.actual
    return int(tokens * share * max(1, attempt)) + 2 * SUMMARY_RESERVE


def _pieces(texts: Sequence[str], size: int) -> Iterator[str]:
    """Yield pieces of about *size* bytes: short *texts*, joined with empty lines, and parts of longer texts."""
    piece: list[str] = []
    room = size
    for text in texts:
        for start in range(0, len(text), size):
            part = text[start : start + size]
            if piece and len(part.encode()) > room:
                yield "\n\n".join(piece)
                piece, room = [], size
            piece.append(part)
            room -= len(part.encode())
    if piece:
        yield "\n\n".join(piece)


NOTES_WAIT = 15.0
"""Seconds that a compaction waits for a running update of the session notes."""


async def summarize_from_notes(job: CompactionJob, notes: SessionNotesLayer | None) -> CompactionPlan | str:
    """Return a plan with the session notes as summary, without a model call; turns newer than the notes stay.

    Returns a text with the reason if that is impossible, for example if there are no notes or too many newer turns.
    """
    if notes is None or not job.settings.by_notes:
        return "session notes are switched off (layers.notes.enabled, layers.compaction.by_notes)"
    if job.pivot is not None:
        return "the user selected a part of the conversation, and notes are about all of it"
    state = await _notes_state(notes)
    if state is None:
        return f"there are no session notes yet: {notes.delay}"
    behind = job.agent.turn - state.turn
    unknown = first_unknown(job.messages, behind)
    start = choose_start(job.messages, job.sizes, job.settings, unknown)
    if start is None:
        turns = "the last turn" if behind == 1 else f"the last {behind} turns"
        size = f"{sum(job.sizes[unknown:]):,} tokens; at most {job.settings.keep_most:,} may stay"
        return f"the notes do not cover {turns}, {size}: {notes.delay}"
    return CompactionPlan(by="notes", summary=state.text, start=start)


async def summarize_by_model(
    job: CompactionJob, breaker: CircuitBreaker, notes: SessionNotesLayer | None
) -> CompactionPlan | str:
    """Return a plan with a summary by the model, or the reason why there is none; a failure also emits an event.

    Counts failures in *breaker*. Appends the section about errors from *notes* if the summary does not contain it.
    """
    if not job.settings.by_model:
        return "summaries by a model are switched off (layers.compaction.by_model)"
    if breaker.is_open:
        return f"the last {breaker.failures} summaries failed, so no model is asked"
    span, summarizer = job.span(), ConversationSummarizer(job.agent, job.messages, job.sizes)
    try:
        summary = await summarizer.summarize(span.scope, job.overflow)
    except (SummaryUnusable, ModelError, ReplyMalformed) as exc:
        breaker.failures += 1
        job.agent.report_failure(LAYER, exc)
        if breaker.failures == breaker.limit:
            job.agent.emit(BreakerTripped(failures=breaker.failures, reason=str(exc)))
        return str(exc)
    except (BudgetSpent, ControlLost) as exc:
        # Not counted as a failed summary: other code handles a spent budget and a lost channel.
        job.agent.report_failure(LAYER, exc)
        return str(exc)
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
    """Return a plan that removes the oldest messages; its summary has only the beginning of earlier summaries."""
    span = job.span(attrs.evolve(job.settings, keep_least=job.room // 2, keep_most=job.room // 2))
    leaving = job.messages[span.first : span.start]
    earlier = truncate_text("\n\n".join(earlier_summaries(leaving)), job.room // 8 * TEXT_BYTES)
    summary = f"{earlier}\n\n({len(leaving)} messages were removed.)".strip()
    return CompactionPlan(by="rule", summary=summary, first=span.first, start=span.start)

"""Layer 3: session notes, which a helper updates while the agent works."""

from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from pathlib import Path
from typing import Self

import attrs
import trio

from coterie.agents.events.layer_events import Compacted, LayerFailed, NotesUpdated
from coterie.agents.layers.background_task import BackgroundTask
from coterie.agents.layers.layer2_clearing import cleared_by_api
from coterie.agents.layers.layer3_notes_update import PURPOSE, NotesUpdate, NotesWriter, UpdateCost
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.token_estimate import estimate_block
from coterie.agents.loop.conversation.transcript_records import NotesRecord
from coterie.agents.loop.forks.helper import HelperStart
from coterie.agents.loop.model.client import CALL_FAILURES
from coterie.agents.loop.model.reply import Reply
from coterie.agents.loop.model.usage import Usage
from coterie.memory.compaction.result_clearing import kept_size_after
from coterie.memory.errors import NotesUnusable
from coterie.memory.layer_settings import CompactionSettings, NotesSettings
from coterie.memory.notes.notes_file import read_notes, tokens_of, trim_notes
from coterie.memory.notes.notes_schedule import Delay, NotesSchedule, UpdateThreshold
from coterie.memory.notes.template import ERRORS

DIRECTIVE = 1_000
"""Estimated tokens of the directive without the notes."""
OUTPUT = 1_000
"""Estimated output tokens of the first update."""
_DELAYS: dict[Delay | None, str] = {
    "growth": "the context has grown too little since the last update",
    "calls": "too few tool calls since the last update",
    "money": "another update would cost more than the notes' share of the cost of turns",
    None: "the context was full before another update was due",
}


@attrs.frozen(kw_only=True)
class NotesState:
    """The notes and the turn up to which they cover the conversation."""

    text: str
    """The sections that are not empty, without the pinned ones."""
    turn: int
    """The first turn that the notes do not cover; they also do not cover the results of the calls before it."""
    errors: str
    """Failed attempts that must not be repeated; may be empty."""


@attrs.frozen(kw_only=True)
class _DueUpdate:
    """One requested update."""

    start: HelperStart
    turn: int


@attrs.define(eq=False)
class SessionNotesLayer:
    """Pipeline step that updates the session notes of one agent in the background, one update at a time.

    A failure becomes an event and never reaches the agent. Created by `build`.
    """

    _agent: Agent
    _writer: NotesWriter
    _schedule: NotesSchedule
    _turn: int | None
    """The first turn that the notes do not cover; None before the first update."""
    _tokens: int = attrs.field(default=0, init=False)
    """Tokens of the notes."""
    _output: int = attrs.field(default=OUTPUT, init=False)
    """Output tokens of the last update."""
    _is_teammate: bool = True
    """False if the agent ends after a reply without tool calls, so that an update after it would be useless."""
    _task: BackgroundTask[_DueUpdate] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._task = BackgroundTask("session notes", self._update)

    @classmethod
    def build(
        cls,
        agent: Agent,
        writer: NotesWriter,
        *,
        compaction: CompactionSettings | None = None,
        is_teammate: bool = True,
    ) -> Self:
        """Create the layer of *agent*; it continues the state of an earlier incarnation.

        *compaction* has the settings of a compaction that uses the notes as its summary; the schedule then reserves
        money for an update shortly before that compaction.
        """
        record = agent.transcript.loaded.notes
        turn = None if record is None else record.turn
        return cls(agent, writer, _schedule(agent, writer.settings, compaction), turn, is_teammate)

    def open(self) -> AbstractAsyncContextManager[None]:
        """Update the notes in the background until the block ends.

        The end of the block cancels a running update; to keep it, await `wait_until_written` first.
        """
        return self._task.open()

    @property
    def path(self) -> Path:
        """Path of the notes file."""
        return self._writer.path

    def on_reply(self, agent: Agent, reply: Reply) -> None:
        """Start an update from the current conversation if one is due."""
        tokens = agent.meter.tokens(agent.conversation)
        self._schedule = self._schedule.after_turn(tokens, len(reply.tool_calls), agent.model.cost(reply.usage))
        # After a clearing by the API, the helper's prompt would not match the agent's cache entries.
        is_useful = (self._is_teammate or bool(reply.tool_calls)) and not cleared_by_api(reply)
        is_free = self._task.is_open and not self._task.is_busy
        if is_useful and is_free and self._delay(tokens) is None:
            self._schedule = self._schedule.after_start(tokens)
            self._task.submit(_DueUpdate(start=HelperStart.of(agent), turn=agent.turn))

    @property
    def delay(self) -> str:
        """The reason why the notes are not up to date."""
        if not self._task.is_open:
            return "they are no longer updated"
        if self._task.is_busy:
            return "an update is still running"
        if self._schedule.failures:
            return "the last update failed"
        return _DELAYS[self._delay(self._agent.meter.tokens(self._agent.conversation))]

    async def wait_until_written(self) -> None:
        """Wait until no update is running; this may take several model calls."""
        await self._task.wait_until_idle()

    async def current(self) -> NotesState | None:
        """Read the notes from their file; None if they are missing, empty or unreadable."""
        if self._turn is None:
            return None
        try:
            notes = await trio.to_thread.run_sync(read_notes, self.path, self._writer.template)
        except OSError as exc:
            self._fail(exc)
            return None
        if notes is None or notes.is_empty:
            return None
        notes, _ = trim_notes(notes, self._writer.settings)
        return NotesState(text=notes.shown_text(), turn=self._turn, errors=notes.body(ERRORS))

    async def on_compacted(self, _agent: Agent, _compacted: Compacted) -> None:
        """Measure the growth of the context from its size after the compaction."""
        self._schedule = self._schedule.after_shrink(self._agent.meter.tokens(self._agent.conversation))

    async def _update(self, due: _DueUpdate) -> None:
        began, spending = trio.current_time(), UpdateCost(self._agent.model)
        try:
            updated = await self._writer.update(self._agent, due.start, spending)
            self._record(due, updated, spending, trio.current_time() - began)
        except (*CALL_FAILURES, NotesUnusable, OSError) as exc:
            self._schedule = self._schedule.after_failure(spending.cost)
            self._fail(exc)

    def _record(self, due: _DueUpdate, updated: NotesUpdate, spending: UpdateCost, seconds: float) -> None:
        schedule = self._schedule.after_success(spending.cost)
        record = NotesRecord(
            turn=due.turn,
            tokens=due.start.tokens,
            cost_usd=format(schedule.notes_usd, "f"),
            turns_usd=format(schedule.turns_usd, "f"),
        )
        self._agent.transcript.record(self._agent.conversation, record)
        self._schedule, self._turn, self._output = schedule, due.turn, spending.output
        self._tokens = tokens_of(updated.notes.shown_text())
        self._agent.emit(
            NotesUpdated(
                path=str(self.path),
                tokens=self._tokens,
                edits=spending.edits,
                trimmed=updated.trimmed,
                seconds=round(seconds, 6),
                cost_usd=format(spending.cost, "f"),
            )
        )

    def _delay(self, tokens: int) -> Delay | None:
        """The reason why no update is due now; None if one is due."""
        unknown = self._unknown() if self._schedule.is_close(tokens) else 0
        return self._schedule.delay(tokens, self._expected(tokens), unknown)

    def _unknown(self) -> int:
        """Tokens of the messages that would have to stay if the notes were used as a summary now."""
        behind = self._agent.turn if self._turn is None else self._agent.turn - self._turn
        return kept_size_after(self._agent.conversation.prefix, behind, estimate_block)

    def _expected(self, tokens: int) -> Decimal:
        """Estimated cost of an update in dollars; the helper reads the cache entries of the last reply."""
        cached = min(tokens, self._agent.meter.cached(self._agent.conversation) or 0)
        fresh = tokens - cached + DIRECTIVE + self._tokens
        return self._agent.model.cost(Usage(input=fresh, read=cached, output=self._output))

    def _fail(self, error: Exception) -> None:
        self._agent.emit(LayerFailed(layer=PURPOSE, reason=str(error)))


def _schedule(agent: Agent, settings: NotesSettings, compaction: CompactionSettings | None) -> NotesSchedule:
    full, record = agent.meter.thresholds.compact, agent.transcript.loaded.notes
    need = None if compaction is None else UpdateThreshold(tokens=full, most=compaction.within(full).keep_most)
    if record is None:
        return NotesSchedule(settings=settings, need=need, since=_inherited(agent))
    return NotesSchedule(
        settings=settings,
        need=need,
        since=record.tokens,
        has_begun=True,
        turns_usd=Decimal(record.turns_usd),
        notes_usd=Decimal(record.cost_usd),
    )


def _inherited(agent: Agent) -> int:
    """Tokens that a fork inherited from its parent, whose notes cover them."""
    prefix, count = agent.conversation.prefix, min(agent.inherited, len(agent.conversation))
    estimate = sum(estimate_block(prefix[index].data) for index in range(count))
    return min(estimate, agent.meter.tokens(agent.conversation))

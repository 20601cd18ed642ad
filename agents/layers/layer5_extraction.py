"""Layer 5: extraction of memories from the conversation, by a helper, when the agent has finished."""

import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import ClassVar
from xml.sax.saxutils import escape

import attrs
import trio

from coterie.agents.events.layer_events import MemoryChanged, MemoryExtracted
from coterie.agents.layers.background_task import BackgroundTask
from coterie.agents.loop.agent import Agent, ToolAnswer
from coterie.agents.loop.conversation.transcript_records import ExtractionRecord
from coterie.agents.loop.forks.helper import HelperStart, run_helper
from coterie.agents.loop.model.client import CALL_FAILURES
from coterie.agents.loop.model.reply import Reply
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.helper_rights import HelperRights
from coterie.agents.prompts import render
from coterie.agents.tools.workspace.file_change import WritableMemory
from coterie.memory.compaction.cut_point import split_messages
from coterie.memory.errors import StoreError
from coterie.memory.extraction.extraction_schedule import ExtractionSchedule, agent_already_wrote, count_unread
from coterie.memory.layer_settings import ExtractionSettings
from coterie.memory.recall.store_scan import scan_newest
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX

PURPOSE = "extraction"
COMPLETE = frozenset({"end_turn", "tool_use", "stop_sequence"})
"""Stop reasons of a complete reply."""


@attrs.define(eq=False)
class ExtractionResult:
    """Cost and written memories of one helper so far."""

    _agent: Agent
    cost: Decimal = Decimal(0)
    replies: int = 0
    changes: list[MemoryChange] = attrs.field(factory=list)
    failure: str | None = None
    """Error of a write in the last reply with writes; None if all of them succeeded."""

    def count_reply(self, reply: Reply, answers: Sequence[ToolAnswer]) -> bool:
        """Count *reply*; return True if it wrote memories and all writes succeeded."""
        self.replies += 1
        self.cost += self._agent.model.cost(reply.usage)
        written = [answer.result for answer in answers if answer.call["name"] in HelperRights.writing]
        failed = [result.text.partition("\n")[0] for result in written if result.is_error]
        if written:
            self.failure = failed[-1] if failed else None
        return bool(written) and not failed

    def changed(self, change: MemoryChange) -> None:
        """Collect one change of a memory and emit its event."""
        self.changes.append(change)
        self._agent.emit(MemoryChanged(path=change.path, change=change.id, action=change.action, by="extraction"))


WROTE_ITSELF = "the agent has written to the memory itself"


@attrs.define(eq=False)
class Extraction(BackgroundTask[HelperStart]):
    """Pipeline step that extracts memories from one agent's conversation in the background, one run at a time.

    A failure becomes an event, and the next extraction covers the same turns again. Continues after an earlier
    incarnation.
    """

    name: ClassVar[str] = "extraction"
    _agent: Agent
    _store: MemoryStore
    _settings: ExtractionSettings
    _author: Callable[[], Author]
    """Returns the identity of the agent for the history of the store."""
    _authority: Authorizer | None = None
    """Permission rules that also apply to the helper."""
    _schedule: ExtractionSchedule = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        record = self._agent.transcript.loaded.extraction
        self._schedule = ExtractionSchedule(every=self._settings.every, cursor=1 if record is None else record.turn)

    async def before_end(self) -> None:
        """Wait for a running extraction, up to the limit."""
        if not await self.drain(self._settings.drain):
            self._agent.report_failure(
                PURPOSE, f"the extraction was cancelled {self._settings.drain:g} seconds after the agent's end"
            )

    def on_run_finished(self) -> None:
        """Request an extraction if one is due or another one is running; never blocks."""
        self._schedule = self._schedule.after_run()
        if self.is_busy or self._schedule.is_due(self._agent.turn):
            self.submit(HelperStart.of(self._agent))

    async def run_now(self) -> MemoryExtracted | None:
        """Extract immediately because the user asked for it, even if the agent wrote memories itself.

        If no turn is new, the extraction covers the whole conversation. Returns the emitted event; None on failure.
        Cancellation stops the extraction immediately and keeps the memories written so far.
        """
        async with self.exclusive():
            return await self._extract(HelperStart.of(self._agent), is_by_hand=True)

    async def handle(self, start: HelperStart) -> None:
        """Run a requested extraction, unless an earlier one has covered its turns."""
        if start.turn > self._schedule.cursor:
            self._schedule = self._schedule.after_start()
            await self._extract(start)

    async def _extract(self, start: HelperStart, *, is_by_hand: bool = False) -> MemoryExtracted | None:
        began, taken = trio.current_time(), ExtractionResult(self._agent)
        try:
            if not is_by_hand:
                changes = await trio.to_thread.run_sync(self._store.changes)
                if agent_already_wrote(changes, self._author(), self._schedule.cursor):
                    return self._conclude(start, taken, 0.0, skipped=WROTE_ITSELF)
            if failure := await self._ask(start, taken):
                self._agent.report_failure(PURPOSE, failure)
            return self._conclude(start, taken, trio.current_time() - began)
        except (*CALL_FAILURES, StoreError, OSError) as exc:
            self._agent.report_failure(PURPOSE, exc)
            return None

    async def _ask(self, start: HelperStart, taken: ExtractionResult) -> str | None:
        """Let a helper extract memories from the new messages; return an error text or None.

        Cancellation keeps the memories written so far. Raises as `run_helper` does, and `OSError`.
        """
        messages = split_messages(start.conversation.segments)
        turns = start.turn - self._schedule.cursor
        count = count_unread(messages, turns) if turns > 0 else len(messages)
        author = attrs.evolve(self._author(), by="extraction", turn=start.turn - 1)
        memory = WritableMemory(stores=(self._store,), author=lambda: author, on_change=taken.changed)
        most = self._settings.turns
        memories = await trio.to_thread.run_sync(scan_newest, self._store.directory)
        facts = {
            "count": f"{count:,}",
            "directory": str(self._store.directory),
            "manifest": "\n".join(escape(scanned.line) for scanned in memories) or "(none yet)",
            "date": time.strftime("%Y-%m-%d", time.localtime(self._agent.clock.now())),
            "turns": str(most),
        }
        reply = await run_helper(
            self._agent,
            render("extraction", **facts),
            PURPOSE,
            max_turns=most,
            denial=HelperRights(writable=(self._store.directory,), authority=self._authority).denial,
            start=attrs.evolve(start, memory=memory),
            until=taken.count_reply,
        )
        if taken.failure is not None:
            return f"a memory could not be written: {taken.failure}"
        if reply.tool_calls and taken.replies == most:  # the calls of the last reply were not run
            return f"the extraction was not finished after {most} replies"
        return None if reply.stop_reason in COMPLETE else f"the model stopped with {reply.stop_reason}"

    def _conclude(
        self, start: HelperStart, taken: ExtractionResult, seconds: float, skipped: str | None = None
    ) -> MemoryExtracted:
        self._agent.transcript.record(self._agent.conversation, ExtractionRecord(turn=start.turn))
        self._schedule = self._schedule.after_extraction(start.turn)
        event = MemoryExtracted(
            saved=list(dict.fromkeys(change.path for change in taken.changes if change.path != INDEX)),
            turns=taken.replies,
            seconds=round(seconds, 6),
            cost_usd=format(taken.cost, "f"),
            skipped=skipped,
        )
        self._agent.emit(event)
        return event

"""Layer 5: extraction of memories: after a run of the agent, a helper (short fork of it) saves facts worth keeping."""

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
"""Stop reasons of the API for a reply that the model finished itself, so that it was not cut off or refused."""


@attrs.define(eq=False)
class ExtractionResult:
    """Counter of the cost, the replies and the memory changes of one running extraction."""

    _agent: Agent
    cost: Decimal = Decimal(0)
    replies: int = 0
    changes: list[MemoryChange] = attrs.field(factory=list)
    failure: str | None = None
    """Error line of a failed write in the last reply that wrote memories; None if all its writes succeeded."""

    def count_reply(self, reply: Reply, answers: Sequence[ToolAnswer]) -> bool:
        """Count *reply*; return True, to stop the helper, if the reply wrote memories and all its writes succeeded."""
        self.replies += 1
        self.cost += self._agent.model.cost(reply.usage)
        written = [answer.result for answer in answers if answer.call["name"] in HelperRights.writing]
        failed = [result.text.partition("\n")[0] for result in written if result.is_error]
        if written:
            self.failure = failed[-1] if failed else None
        return bool(written) and not failed

    def changed(self, change: MemoryChange) -> None:
        """Add *change*, made by the helper to a memory file, to the list of changes, and emit an event for it."""
        self.changes.append(change)
        self._agent.emit(MemoryChanged(path=change.path, change=change.id, action=change.action, by="extraction"))


WROTE_ITSELF = "the agent has written to the memory itself"


@attrs.define(eq=False)
class Extraction(BackgroundTask[HelperStart]):
    """Pipeline step that saves memories from one agent's conversation in the background, one extraction at a time.

    A failure becomes an event; after a failed model call, the next extraction reads the same turns again. After a
    restart of the agent, extraction continues with the first turn that was not read.
    """

    name: ClassVar[str] = "extraction"
    _agent: Agent
    _store: MemoryStore
    _settings: ExtractionSettings
    _author: Callable[[], Author]
    """Function that returns the agent and its turn, as author of changes in the history of the memory store."""
    _authority: Authorizer | None = None
    """Permission rules of the agent, whose denials apply to the helper (fork of it) too; None to apply no rules."""
    _schedule: ExtractionSchedule = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        record = self._agent.transcript.loaded.extraction
        self._schedule = ExtractionSchedule(every=self._settings.every, cursor=1 if record is None else record.turn)

    async def before_end(self) -> None:
        """Wait for a running or requested extraction, up to the `drain` limit; after that, emit a failure event."""
        if not await self.drain(self._settings.drain):
            reason = f"was cancelled {self._settings.drain:g} s after the agent's end; raise layers.extraction.drain"
            self._agent.report_failure(PURPOSE, f"the extraction of memories {reason}")

    def on_run_finished(self) -> None:
        """After a run, request an extraction of memories if one is due, or one is running or waiting; does not wait."""
        self._schedule = self._schedule.after_run()
        if self.is_busy or self._schedule.is_due(self._agent.turn):
            self.submit(HelperStart.of(self._agent))

    async def run_now(self) -> MemoryExtracted | None:
        """Extract memories on request of the user, even if the agent wrote memories itself, and wait for the end.

        If no turn is new since the last extraction, it reads the whole conversation. Returns the emitted event; None if
        an error ended the extraction. Cancellation stops it immediately and keeps the memories written so far.
        """
        async with self.exclusive():
            return await self._extract(HelperStart.of(self._agent), is_by_hand=True)

    async def handle(self, start: HelperStart) -> None:
        """Extract memories from the conversation in *start*, unless an earlier extraction has read all its turns."""
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
        """Let a helper (fork of the agent) save memories from unread turns; return an error line, or None on success.

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
            return f"the extraction of memories was stopped after {most} replies; raise layers.extraction.turns"
        return None if reply.stop_reason in COMPLETE else f"the last reply was cut off or refused: {reply.stop_reason}"

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

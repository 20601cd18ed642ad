"""Layer 5: extraction of memories from the conversation, by a helper, when the agent has finished."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Self
from xml.sax.saxutils import escape

import attrs
import trio

from coterie.agents.events.layer_events import LayerFailed, MemoryChanged, MemoryExtracted
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

    @property
    def saved(self) -> list[str]:
        """Paths of the written memories, without duplicates."""
        return list(dict.fromkeys(change.path for change in self.changes if change.path != INDEX))


def _manifest(store: MemoryStore) -> str:
    return "\n".join(escape(scanned.line) for scanned in scan_newest(store.directory)) or "(none yet)"


WROTE_ITSELF = "the agent has written to the memory itself"


@attrs.frozen(kw_only=True)
class _Request:
    """One requested extraction."""

    start: HelperStart
    turn: int
    """The first turn that is not part of the conversation."""
    is_by_hand: bool = False


@attrs.define(eq=False)
class Extraction:
    """Pipeline step that extracts memories from one agent's conversation in the background, one run at a time.

    A failure becomes an event, and the next extraction covers the same turns again. Created by `build`.
    """

    _agent: Agent
    _store: MemoryStore
    _settings: ExtractionSettings
    _rights: HelperRights
    _author: Callable[[], Author]
    _schedule: ExtractionSchedule
    _task: BackgroundTask[_Request] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._task = BackgroundTask("extraction", self._serve)

    @classmethod
    def build(
        cls,
        agent: Agent,
        store: MemoryStore,
        settings: ExtractionSettings,
        author: Callable[[], Author],
        *,
        authority: Authorizer | None = None,
    ) -> Self:
        """Create the extraction from *agent*'s conversation to *store*; it continues after an earlier incarnation.

        *author* identifies *agent* in the history of the store. The helper may do nothing that *authority* denies.
        """
        rights = HelperRights(writable=(store.directory,), authority=authority)
        record = agent.transcript.loaded.extraction
        schedule = ExtractionSchedule(every=settings.every, cursor=1 if record is None else record.turn)
        return cls(agent, store, settings, rights, author, schedule)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Extract in the background until the block ends.

        The end of the block waits for a running extraction, up to the limit, and then cancels it; an error that ends
        the block, or cancellation, does so immediately.
        """
        async with self._task.open():
            yield
            if not await self._task.drain(self._settings.drain):
                self._fail(f"the extraction was cancelled {self._settings.drain:g} seconds after the agent's end")

    def on_run_finished(self) -> None:
        """Request an extraction if one is due or another one is running; never blocks."""
        self._schedule = self._schedule.after_run()
        if self._task.is_busy or self._schedule.is_due(self._agent.turn):
            self._task.submit(self._request())

    async def wait_until_idle(self) -> None:
        """Wait until no extraction is running; this may take several model calls."""
        await self._task.wait_until_idle()

    async def run_now(self) -> MemoryExtracted | None:
        """Extract immediately because the user asked for it, even if the agent wrote memories itself.

        If no turn is new, the extraction covers the whole conversation. Returns the emitted event; None on failure.
        Cancellation stops the extraction immediately and keeps the memories written so far.
        """
        async with self._task.exclusive():
            return await self._extract(self._request(is_by_hand=True))

    def _request(self, *, is_by_hand: bool = False) -> _Request:
        return _Request(start=HelperStart.of(self._agent), turn=self._agent.turn, is_by_hand=is_by_hand)

    async def _serve(self, request: _Request) -> None:
        """Run a requested extraction, unless an earlier one has covered its turns."""
        if request.turn > self._schedule.cursor:
            self._schedule = self._schedule.after_start()
            await self._extract(request)

    async def _extract(self, request: _Request) -> MemoryExtracted | None:
        began, taken = trio.current_time(), ExtractionResult(self._agent)
        try:
            if not request.is_by_hand and await self._wrote_itself():
                return self._conclude(request, taken, 0.0, skipped=WROTE_ITSELF)
            if failure := await self._ask(request, taken):
                self._fail(failure)
            return self._conclude(request, taken, trio.current_time() - began)
        except (*CALL_FAILURES, StoreError, OSError) as exc:
            self._fail(str(exc))
            return None

    async def _ask(self, request: _Request, taken: ExtractionResult) -> str | None:
        """Let a helper extract memories from the new messages; return an error text or None.

        Cancellation keeps the memories written so far. Raises as `run_helper` does, and `OSError`.
        """
        messages = split_messages(request.start.conversation.segments)
        turns = request.turn - self._schedule.cursor
        count = count_unread(messages, turns) if turns > 0 else len(messages)
        author = attrs.evolve(self._author(), by="extraction", turn=request.turn - 1)
        memory = WritableMemory(stores=(self._store,), author=lambda: author, on_change=taken.changed)
        most = self._settings.turns
        facts = {
            "count": f"{count:,}",
            "directory": str(self._store.directory),
            "manifest": await trio.to_thread.run_sync(_manifest, self._store),
            "date": time.strftime("%Y-%m-%d", time.localtime(self._agent.clock.now())),
            "turns": str(most),
        }
        reply = await run_helper(
            self._agent,
            render("extraction", **facts),
            PURPOSE,
            max_turns=most,
            denial=self._rights.denial,
            start=attrs.evolve(request.start, memory=memory),
            until=taken.count_reply,
        )
        if taken.failure is not None:
            return f"a memory could not be written: {taken.failure}"
        if reply.tool_calls and taken.replies == most:  # the calls of the last reply were not run
            return f"the extraction was not finished after {most} replies"
        return None if reply.stop_reason in COMPLETE else f"the model stopped with {reply.stop_reason}"

    async def _wrote_itself(self) -> bool:
        changes = await trio.to_thread.run_sync(self._store.changes)
        return agent_already_wrote(changes, self._author(), self._schedule.cursor)

    def _conclude(
        self, request: _Request, taken: ExtractionResult, seconds: float, skipped: str | None = None
    ) -> MemoryExtracted:
        self._agent.transcript.record(self._agent.conversation, ExtractionRecord(turn=request.turn))
        self._schedule = self._schedule.after_extraction(request.turn)
        event = MemoryExtracted(
            saved=taken.saved,
            turns=taken.replies,
            seconds=round(seconds, 6),
            cost_usd=format(taken.cost, "f"),
            skipped=skipped,
        )
        self._agent.emit(event)
        return event

    def _fail(self, reason: str) -> None:
        self._agent.emit(LayerFailed(layer=PURPOSE, reason=reason))

"""Layer 5: a helper extracts memories from the conversation when the agent has finished."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Self
from xml.sax.saxutils import escape

import attrs
import trio

from coterie.agents.errors import BudgetSpent, ControlLost, ModelError, ReplyMalformed
from coterie.agents.events.layer_events import LayerFailed, MemoryChanged, MemoryExtracted
from coterie.agents.loop.agent import Agent, ToolAnswer
from coterie.agents.loop.conversation.transcript_records import ExtractionRecord
from coterie.agents.loop.forks.helper import HelperStart, run_helper
from coterie.agents.loop.model.reply import Reply
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.helper_rights import HelperRights
from coterie.agents.prompts import render
from coterie.agents.tools.workspace.memory_files import WritableMemory
from coterie.memory.compaction.cut_point import split_messages
from coterie.memory.errors import StoreError
from coterie.memory.extraction.extraction_schedule import ExtractionSchedule, agent_already_wrote, count_unread
from coterie.memory.layer_settings import ExtractionSettings
from coterie.memory.recall.store_scan import scan_newest
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX

PURPOSE = "extraction"
WELL = frozenset({"end_turn", "tool_use", "stop_sequence"})
"""Stop reasons of a reply that says all it wanted to."""


@attrs.define(eq=False)
class ExtractionResult:
    """What a helper has done so far, and what that cost."""

    _agent: Agent
    cost: Decimal = Decimal(0)
    replies: int = 0
    changes: list[MemoryChange] = attrs.field(factory=list)
    failure: str | None = None
    """Of the last reply that wrote anything: why a memory could not be written, or None."""

    def count_reply(self, reply: Reply, answers: Sequence[ToolAnswer]) -> bool:
        """Count *reply*; true once it has written all it wanted to."""
        self.replies += 1
        self.cost += self._agent.model.cost(reply.usage)
        written = [answer.result for answer in answers if answer.call["name"] in HelperRights.writing]
        failed = [result.text.partition("\n")[0] for result in written if result.is_error]
        if written:
            self.failure = failed[-1] if failed else None
        return bool(written) and not failed

    def changed(self, change: MemoryChange) -> None:
        """Keep in mind, and tell, what was done to a memory."""
        self.changes.append(change)
        self._agent.emit(MemoryChanged(path=change.path, change=change.id, action=change.action, by="extraction"))

    @property
    def saved(self) -> list[str]:
        """The memories that were written, each once."""
        return list(dict.fromkeys(change.path for change in self.changes if change.path != INDEX))


@attrs.frozen(kw_only=True)
class Extractor:
    """Takes memories from the conversation of one agent into one store."""

    store: MemoryStore
    turns: int
    rights: HelperRights

    async def extract(
        self, agent: Agent, start: HelperStart, count: int, author: Author, taken: ExtractionResult
    ) -> str | None:
        """Let a helper look at the last *count* messages of *start*; returns what went wrong, if anything did.

        What it has written by then stays when it is cancelled. Raises as `run_helper` does, and `OSError`.
        """
        manifest = await trio.to_thread.run_sync(_manifest, self.store)
        facts = {"count": f"{count:,}", "directory": str(self.store.directory), "manifest": manifest}
        date = time.strftime("%Y-%m-%d", time.localtime(agent.clock.now()))
        memory = WritableMemory(stores=(self.store,), author=lambda: author, on_change=taken.changed)
        reply = await run_helper(
            agent,
            render("extraction", **facts, date=date, turns=str(self.turns)),
            PURPOSE,
            max_turns=self.turns,
            denial=self.rights.denial,
            start=attrs.evolve(start, memory=memory),
            until=taken.count_reply,
        )
        if taken.failure is not None:
            return f"a memory could not be written: {taken.failure}"
        if reply.tool_calls and taken.replies == self.turns:  # these were not made any more
            return f"it was not done after {self.turns} replies"
        return None if reply.stop_reason in WELL else f"the model ended with {reply.stop_reason}"


def _manifest(store: MemoryStore) -> str:
    return "\n".join(escape(scanned.line) for scanned in scan_newest(store.directory)) or "(none yet)"


WROTE_ITSELF = "the agent has written to the memory itself"


@attrs.frozen(kw_only=True)
class _Request:
    """A conversation that is to be looked at."""

    start: HelperStart
    turn: int
    """The first that is not in it."""
    is_by_hand: bool = False


@attrs.define(eq=False)
class Extraction:
    """Takes memories from the conversation of one agent: one time after another, beside the agent's own turns.

    Whatever goes wrong is an event, and what was not looked at then is looked at the next time. Made by
    `build`.
    """

    _agent: Agent
    _extractor: Extractor
    _author: Callable[[], Author]
    _schedule: ExtractionSchedule
    _drain: float
    """Seconds to wait at the end for a running extraction."""
    _replies: int = attrs.field(default=0, init=False)
    """Of all helpers so far."""
    _current: _Request | None = attrs.field(default=None, init=False)
    _stashed: _Request | None = attrs.field(default=None, init=False)
    """What came while another was under way: the newest, which knows all that the others did."""
    _called: trio.Event = attrs.field(factory=trio.Event, init=False)
    _settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    _is_running: bool = attrs.field(default=True, init=False)

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
        """Extraction from the conversation of *agent* into *store*; continues where an earlier incarnation stopped.

        *author* identifies *agent* in the history of the store. What the rules of *authority* deny, the helper is
        denied too.
        """
        rights = HelperRights(writable=(store.directory,), authority=authority)
        record = agent.transcript.loaded.extraction
        schedule = ExtractionSchedule(every=settings.every, cursor=1 if record is None else record.turn)
        extractor = Extractor(store=store, turns=settings.turns, rights=rights)
        return cls(agent, extractor, author, schedule, settings.drain)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Extract in the background until the block ends.

        The end of the block waits for a running extraction, up to the limit, and then cancels it; an error that ends
        the block, or cancellation, does so immediately.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.run, name="extraction")
            try:
                yield
                await self.drain(self._drain)
            finally:
                nursery.cancel_scope.cancel()

    def on_run_finished(self) -> None:
        """The agent's turn loop has ended: begin if it is time, or right after what is under way; never blocks."""
        self._schedule = self._schedule.after_run()
        if not self._is_running:
            return
        if self._current is not None:
            self._stashed = self._request()
        elif self._schedule.is_due(self._agent.turn):
            self._begin(self._request())

    async def wait_until_idle(self) -> None:
        """Return when nothing is under way; it takes as long as the model does."""
        while self._current is not None:
            await self._settled.wait()

    async def run_now(self) -> MemoryExtracted | None:
        """Look at the conversation because the user wants it, whatever was looked at or written already.

        Where nothing is new, all of it is looked at again. Returns what was told; None if that is why it failed.
        Cancellation stops it at once, and what was written by then stays.
        """
        await self.wait_until_idle()
        self._current = self._request(is_by_hand=True)
        try:
            return await self._extract(self._current)
        finally:
            self._settle()

    async def drain(self, seconds: float) -> None:
        """Wait up to *seconds* until nothing is under way; if that is not enough, an event says so."""
        with trio.move_on_after(seconds) as waiting:
            await self.wait_until_idle()
        if waiting.cancelled_caught:
            self._fail(f"it was stopped, as it was not done {seconds:g} seconds after the agent")

    async def run(self) -> None:
        """Do what is asked for, one time after another, until cancelled."""
        try:
            while True:
                await self._called.wait()
                self._called = trio.Event()
                assert self._current is not None
                await self._extract(self._current)
                self._settle()
        finally:
            self._is_running, self._stashed = False, None
            self._settle()

    def _request(self, *, is_by_hand: bool = False) -> _Request:
        return _Request(start=HelperStart.of(self._agent), turn=self._agent.turn, is_by_hand=is_by_hand)

    def _begin(self, request: _Request) -> None:
        self._current = request
        self._schedule = self._schedule.after_start()
        self._called.set()

    def _settle(self) -> None:
        """What was under way has ended: go on with what has come meanwhile."""
        stashed, self._current, self._stashed = self._stashed, None, None
        if stashed is not None and stashed.turn > self._schedule.cursor:
            self._begin(stashed)
        else:
            self._settled.set()
            self._settled = trio.Event()

    async def _extract(self, request: _Request) -> MemoryExtracted | None:
        began, taken = trio.current_time(), ExtractionResult(self._agent)
        try:
            if not request.is_by_hand and await self._wrote_itself():
                return self._conclude(request, taken, 0.0, skipped=WROTE_ITSELF)
            if failure := await self._ask(request, taken):
                self._fail(failure)
            return self._conclude(request, taken, trio.current_time() - began)
        except (BudgetSpent, ModelError, ReplyMalformed, ControlLost, StoreError, OSError) as exc:
            # Whoever listens on the control line ends the agent when that is lost.
            self._fail(str(exc))
            return None
        finally:
            self._replies += taken.replies

    async def _ask(self, request: _Request, taken: ExtractionResult) -> str | None:
        start = attrs.evolve(request.start, number=self._replies + 1)
        messages = split_messages(start.conversation.segments)
        turns = request.turn - self._schedule.cursor
        count = count_unread(messages, turns) if turns > 0 else len(messages)
        author = attrs.evolve(self._author(), by="extraction", turn=request.turn - 1)
        return await self._extractor.extract(self._agent, start, count, author, taken)

    async def _wrote_itself(self) -> bool:
        changes = await trio.to_thread.run_sync(self._extractor.store.changes)
        return agent_already_wrote(changes, self._author(), self._schedule.cursor)

    def _conclude(
        self, request: _Request, taken: ExtractionResult, seconds: float, skipped: str | None = None
    ) -> MemoryExtracted:
        self._agent.transcript.record(self._agent.conversation, ExtractionRecord(turn=request.turn))
        self._schedule = self._schedule.after_extraction(request.turn)
        told = MemoryExtracted(
            saved=taken.saved,
            turns=taken.replies,
            seconds=round(seconds, 6),
            cost_usd=format(taken.cost, "f"),
            skipped=skipped,
        )
        self._agent.emit(told)
        return told

    def _fail(self, reason: str) -> None:
        self._agent.emit(LayerFailed(layer=PURPOSE, reason=reason))

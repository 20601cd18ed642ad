"""Layer 5: when an agent has finished, a helper takes what is worth keeping from the conversation into the memory."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from coterie.agents.agent import Agent
from coterie.agents.conversation.records import ExtractionRecord
from coterie.agents.errors import BudgetSpent, ControlLost, ModelError, ReplyMalformed
from coterie.agents.events import LayerFailed, MemoryExtracted
from coterie.agents.forks import HelperStart
from coterie.agents.layers.extraction_run import PURPOSE, Extractor, Taken
from coterie.agents.permissions import Authority
from coterie.agents.permissions.helper_rights import HelperRights
from coterie.memory.compaction.cut import messages_of
from coterie.memory.errors import StoreError
from coterie.memory.extraction.schedule import ExtractionLimits, Schedule, unread, wrote_itself
from coterie.memory.store.change import Author
from coterie.memory.store.store import Store

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
    `open_extraction`.
    """

    _agent: Agent
    _extractor: Extractor
    _author: Callable[[], Author]
    _schedule: Schedule
    _replies: int = attrs.field(default=0, init=False)
    """Of all helpers so far."""
    _current: _Request | None = attrs.field(default=None, init=False)
    _stashed: _Request | None = attrs.field(default=None, init=False)
    """What came while another was under way: the newest, which knows all that the others did."""
    _called: trio.Event = attrs.field(factory=trio.Event, init=False)
    _settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    _is_running: bool = attrs.field(default=True, init=False)

    def finished(self) -> None:
        """The agent's turn loop has ended: begin if it is time, or right after what is under way; never blocks."""
        self._schedule = self._schedule.ended()
        if not self._is_running:
            return
        if self._current is not None:
            self._stashed = self._request()
        elif self._schedule.is_due(self._agent.turn):
            self._begin(self._request())

    async def settled(self) -> None:
        """Return when nothing is under way; it takes as long as the model does."""
        while self._current is not None:
            await self._settled.wait()

    async def now(self) -> MemoryExtracted | None:
        """Look at the conversation because the user wants it, whatever was looked at or written already.

        Where nothing is new, all of it is looked at again. Returns what was told; None if that is why it failed.
        Cancellation stops it at once, and what was written by then stays.
        """
        await self.settled()
        self._current = self._request(is_by_hand=True)
        try:
            return await self._extract(self._current)
        finally:
            self._settle()

    async def drain(self, seconds: float) -> None:
        """Wait up to *seconds* until nothing is under way; if that is not enough, an event says so."""
        with trio.move_on_after(seconds) as waiting:
            await self.settled()
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
        self._schedule = self._schedule.begun()
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
        began, taken = trio.current_time(), Taken(self._agent)
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

    async def _ask(self, request: _Request, taken: Taken) -> str | None:
        start = attrs.evolve(request.start, number=self._replies + 1)
        messages = messages_of(start.conversation.segments)
        turns = request.turn - self._schedule.cursor
        count = unread(messages, turns) if turns > 0 else len(messages)
        author = attrs.evolve(self._author(), by="extraction", turn=request.turn - 1)
        return await self._extractor.extract(self._agent, start, count, author, taken)

    async def _wrote_itself(self) -> bool:
        changes = await trio.to_thread.run_sync(self._extractor.store.changes)
        return wrote_itself(changes, self._author(), self._schedule.cursor)

    def _conclude(self, request: _Request, taken: Taken, seconds: float, skipped: str | None = None) -> MemoryExtracted:
        self._agent.transcript.record(self._agent.conversation, ExtractionRecord(turn=request.turn))
        self._schedule = self._schedule.known(request.turn)
        told = MemoryExtracted(
            saved=taken.saved,
            turns=taken.replies,
            seconds=round(seconds, 6),
            cost_usd=format(taken.cost, "f"),
            skipped=skipped,
        )
        self._agent.tell(told)
        return told

    def _fail(self, reason: str) -> None:
        self._agent.tell(LayerFailed(layer=PURPOSE, reason=reason))


@asynccontextmanager
async def open_extraction(
    agent: Agent,
    store: Store,
    limits: ExtractionLimits,
    author: Callable[[], Author],
    *,
    authority: Authority | None = None,
) -> AsyncIterator[Extraction]:
    """Take memories from *agent*'s conversation into *store* each time its loop has `finished`, until the block ends.

    *author* says who *agent* is, and what it is at; what the rules of *authority* deny, the helper is denied too. An
    agent that was resumed goes on where it was. The end of the block waits for what is under way, up to the limit, and
    then cancels it; an error that ends the block, or cancellation, does so at once.
    """
    rights = HelperRights(writable=(store.directory,), authority=authority)
    record = agent.transcript.loaded.extraction
    schedule = Schedule(every=limits.every, cursor=1 if record is None else record.turn)
    extraction = Extraction(agent, Extractor(store=store, turns=limits.turns, rights=rights), author, schedule)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(extraction.run, name="extraction")
        try:
            yield extraction
            await extraction.drain(limits.drain)
        finally:
            nursery.cancel_scope.cancel()

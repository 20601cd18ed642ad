"""Memory recall: memories that may help are looked up beside the agent's turns."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from functools import partial
from typing import Literal, Self, TypeVar

import attrs
import trio

from coterie.agents.errors import BudgetSpent, ControlLost, ModelError, ReplyMalformed
from coterie.agents.events.layer_events import Compacted, LayerFailed, Recalled
from coterie.agents.layers.recall_selection import PURPOSE, RecallCaller, choose_memories
from coterie.agents.loop.agent import NOTHING, AddedBlocks, Agent, ToolAnswer
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript_records import RecallRecord
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.prompts import render
from coterie.errors import ConfigInvalid
from coterie.memory.errors import StoreError
from coterie.memory.layer_settings import RecallSettings
from coterie.memory.recall.query_log import log_query
from coterie.memory.recall.recaller import MemoryLocation, Recaller, Survey
from coterie.memory.recall.tokenizer import is_single_token
from coterie.memory.store.memory_store import MemoryStore

TOLD = 20
"""Memories of which an event says why they were left out."""

By = Literal["model", "local"]
T = TypeVar("T")


@attrs.frozen(kw_only=True)
class _Chosen:
    """What was chosen, by whom."""

    by: By
    places: list[MemoryLocation]
    others: list[MemoryLocation]
    """The first of those that were not."""
    cost: Decimal
    is_usable: bool = True
    """False if a model was asked, and answered something else."""


@attrs.define(eq=False)
class MemoryRecall:
    """Looks for memories beside the agent's own turns, one query at a time. Made by `build`.

    Whatever goes wrong is an event, and there are fewer memories. What was shown to the model since the last
    compaction, and what it has read itself, is not shown again.
    """

    _agent: Agent
    _stores: Sequence[MemoryStore]
    _settings: RecallSettings
    _by: By
    _recaller: Recaller
    _shown: set[str] = attrs.field(factory=set)
    """Files."""
    _bytes: int = 0
    """Of all that was shown."""
    _query: str | None = None
    """What was last looked for, or was said when nobody looked."""
    _waiting: str | None = attrs.field(default=None, init=False)
    """The query that is next."""
    _is_looking: bool = attrs.field(default=False, init=False)
    _is_running: bool = attrs.field(default=True, init=False)
    _called: trio.Event = attrs.field(factory=trio.Event, init=False)
    _settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ready: dict[str, str] = attrs.field(factory=dict, init=False)
    """What is to be shown, by file; the best first."""

    @classmethod
    def build(cls, agent: Agent, stores: Sequence[MemoryStore], settings: RecallSettings, by: By) -> Self:
        """Recall from *stores* for *agent*; what an earlier incarnation was shown counts."""
        loaded = agent.transcript.loaded
        recaller = Recaller([store.directory for store in stores], settings)
        said = agent.user_texts[-1] if agent.user_texts else None
        return cls(agent, stores, settings, by, recaller, set(loaded.recalled), loaded.recalled_bytes, said)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Serve queries in the background until the block ends; a running one is then cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.run, name="recall")
                try:
                    yield
                finally:
                    nursery.cancel_scope.cancel()
        finally:
            self._recaller.close()

    @property
    def is_local(self) -> bool:
        """Whether no model is asked, so that waiting for it takes no time worth speaking of."""
        return self._by == "local"

    def begin(self, query: str) -> None:
        """Start looking for what fits *query*; one that still waits is forgotten for it.

        Nothing is looked for if it is a single word, or if enough was shown already.
        """
        self._query = query
        if is_single_token(query) or self._bytes >= self._settings.session_bytes or not self._is_running:
            return
        self._waiting = query
        self._called.set()

    async def wait_until_idle(self) -> None:
        """Return when nothing is under way; it may take as long as the model does."""
        while self._waiting is not None or self._is_looking:
            await self._settled.wait()

    async def before_call(self, agent: Agent) -> None:
        """As a step before a call: `begin` with what the human has said since the last one."""
        if agent.user_texts and agent.user_texts[-1] != self._query:
            self.begin(agent.user_texts[-1])

    def take_found(self) -> AddedBlocks:
        """What was found and not taken yet, for the next message to the model, which must be recorded with it."""
        known, ready, self._ready = self._known(), self._ready, {}
        texts = {file: text for file, text in ready.items() if file not in known}
        if not texts:
            return NOTHING
        block = text_block(render("recall", memories="\n".join(texts.values())))
        size = sum(len(text.encode()) for text in texts.values())
        self._shown |= texts.keys()
        self._bytes += size
        record = RecallRecord(paths=list(texts), bytes=size, at=self._agent.clock.now())
        return AddedBlocks(blocks=(block,), records=(record,))

    def add_blocks(self, _agent: Agent, _answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """As a step behind the results of calls: `take`."""
        return self.take_found()

    async def on_compacted(self, _agent: Agent, _compacted: Compacted) -> None:
        """The context has forgotten what it was shown: it may be shown again."""
        self._shown.clear()

    async def run(self) -> None:
        """Look for what one query after another asks for, until cancelled."""
        try:
            while True:
                await self._called.wait()
                self._called = trio.Event()
                while self._waiting is not None:
                    query, self._waiting, self._is_looking = self._waiting, None, True
                    await self._search(query)
                    self._is_looking = False
                self._settle()
        finally:
            self._is_running = self._is_looking = False
            self._waiting = None
            self._settle()

    def _settle(self) -> None:
        self._settled.set()
        self._settled = trio.Event()

    async def _search(self, query: str) -> None:
        began = trio.current_time()
        try:
            survey = await _in_thread(partial(self._recaller.survey, self._known()))
            if not survey.files and not survey.left_out:
                return
            chosen = await self._choose(query, survey)
            await self._make_ready(chosen, survey, began)
            await _in_thread(partial(self._remember, query, chosen.places))
        except (sqlite3.Error, StoreError, OSError) as exc:
            self._fail(str(exc))

    async def _choose(self, query: str, survey: Survey) -> _Chosen:
        """By the model if there is one that can be asked, else by the local ranker."""
        cost = Decimal(0)
        if self._by == "model" and survey.files:
            try:
                chosen = await self._ask(query, survey)
            except (BudgetSpent, ModelError, ReplyMalformed, ControlLost, ConfigInvalid) as exc:
                # Whoever listens on the control line ends the agent when that is lost.
                self._fail(f"{exc}; the local ranker chooses instead")
            else:
                if chosen.is_usable:
                    return chosen
                cost = chosen.cost
                self._fail("the model's answer names no memories; the local ranker chooses instead")
        most = self._settings.most
        ranking = partial(self._recaller.rank, query, survey, trio.from_thread.check_cancelled, most + TOLD)
        ranked = await _in_thread(ranking)
        return _Chosen(by="local", places=ranked[:most], others=ranked[most:], cost=cost)

    async def _ask(self, query: str, survey: Survey) -> _Chosen:
        offered = await _in_thread(partial(self._recaller.candidates, query, survey, trio.from_thread.check_cancelled))
        model = known_models().get(self._settings.model)
        choice = await choose_memories(RecallCaller.of(self._agent), model, query, offered, self._settings.most)
        names, chosen = self._recaller.name_locations(list(survey.files)), choice.names or []
        return _Chosen(
            by="model",
            places=[names[name] for name in chosen],
            others=[names[name] for name in offered if name not in chosen],
            cost=choice.cost,
            is_usable=choice.names is not None,
        )

    async def _make_ready(self, chosen: _Chosen, survey: Survey, began: float) -> None:
        """Load what was chosen, as far as there is room for it, and tell of it."""
        loaded = await _in_thread(partial(self._recaller.load, chosen.places))
        now, room = self._agent.clock.now(), self._settings.session_bytes - self._bytes
        left_out = dict.fromkeys((str(place.file) for place in survey.left_out), "in the context already")
        ready: dict[str, str] = {}
        for place in chosen.places:
            text = loaded[place].render(place.file, now, self._settings.stale_days) if place in loaded else ""
            room -= len(text.encode())
            if text and room >= 0:
                ready[str(place.file)] = text
            else:
                left_out[str(place.file)] = "no room is left for it" if text else "cannot be read"
        left_out |= dict.fromkeys((str(place.file) for place in chosen.others[:TOLD]), "others fit better")
        self._ready = ready
        self._agent.emit(
            Recalled(
                by=chosen.by,
                candidates=len(survey.files),
                chosen=list(ready),
                left_out=dict(list(left_out.items())[:TOLD]),
                bytes=sum(len(text.encode()) for text in ready.values()),
                seconds=round(trio.current_time() - began, 6),
                cost_usd=format(chosen.cost, "f"),
            )
        )

    def _remember(self, query: str, places: Sequence[MemoryLocation]) -> None:
        for store in self._stores:
            paths = [place.path for place in places if place.directory == store.directory]
            log_query(store.directory, query, paths, self._agent.clock)

    def _known(self) -> set[str]:
        """Files that are in the context."""
        return self._shown | self._agent.workspace.seen.known().keys()

    def _fail(self, reason: str) -> None:
        self._agent.emit(LayerFailed(layer=PURPOSE, reason=reason))


async def _in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)

"""Memory recall: a background search for stored memories that fit the user's text; the agent gets their content."""

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from decimal import Decimal
from functools import partial
from typing import ClassVar, Literal

import attrs
import trio

from coterie.agents.events.layer_events import Compacted, Recalled
from coterie.agents.layers.background_task import BackgroundTask
from coterie.agents.layers.recall_selection import PURPOSE, RecallCaller, choose_memories
from coterie.agents.loop.agent import NOTHING, AddedBlocks, Agent, ToolAnswer
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript_records import RecallRecord
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import CALL_FAILURES
from coterie.agents.prompts import render
from coterie.errors import ConfigInvalid
from coterie.memory.errors import StoreError
from coterie.memory.layer_settings import RecallSettings
from coterie.memory.recall.query_log import log_query
from coterie.memory.recall.recaller import MemoryLocation, Recaller, Survey
from coterie.memory.recall.tokenizer import is_single_token
from coterie.memory.store.memory_store import MemoryStore

REPORTED = 20
"""Maximum number of memories for which the event of a search gives the reason why they were not shown."""

By = Literal["model", "local"]


@attrs.frozen(kw_only=True)
class _Chosen:
    """Memories selected in one search, by the model or by the local ranker (comparison of words)."""

    by: By
    places: list[MemoryLocation]
    others: list[MemoryLocation]
    """Other memories that were considered but not chosen; the event of the search lists some of them."""
    cost: Decimal


@attrs.define(eq=False)
class MemoryRecall(BackgroundTask[str]):
    """Pipeline step that searches stored memories in the background and adds those that fit to the next message.

    A failure becomes an event, and the agent gets fewer memories. Memories that were shown since the last compaction,
    also before a restart of the agent, or that the model has read itself, are not shown again.
    """

    name: ClassVar[str] = "recall"
    _agent: Agent
    _stores: Sequence[MemoryStore]
    _settings: RecallSettings
    _by: By
    _recaller: Recaller = attrs.field(init=False)
    _shown: set[str] = attrs.field(init=False)
    """Paths of the memory files that were shown to the model since the last compaction."""
    _bytes: int = attrs.field(init=False)
    """Bytes of all memories that were ever shown to this agent; the setting `session_bytes` limits them."""
    _query: str | None = attrs.field(init=False)
    """Last text of the user for which a search was requested, to request none twice in a row; None before any text."""
    _ready: dict[str, str] = attrs.field(factory=dict, init=False)
    """Found memories that the next message will show: the text for the model by file path, best first."""

    def __attrs_post_init__(self) -> None:
        loaded, user_texts = self._agent.transcript.loaded, self._agent.user_texts
        self._shown, self._bytes = set(loaded.recalled), loaded.recalled_bytes
        self._query = user_texts[-1] if user_texts else None
        self._recaller = Recaller([store.directory for store in self._stores], self._settings)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Run requested searches in the background until the block ends, which cancels a running search."""
        with closing(self._recaller):
            async with BackgroundTask.open(self):
                yield

    @property
    def is_local(self) -> bool:
        """True if searches call no model, but only the local ranker, so that they take little time."""
        return self._by == "local"

    def begin(self, query: str) -> None:
        """Request a background search for memories that fit *query*; it replaces a search that has not begun.

        Does nothing if *query* is a single word, or if the agent was shown as many bytes of memories as allowed.
        """
        self._query = query
        if not is_single_token(query) and self._bytes < self._settings.session_bytes:
            self.submit(query)

    async def before_call(self, agent: Agent) -> None:
        """Before a model call, request a search for the user's latest text, unless the last search was for it."""
        if agent.user_texts and agent.user_texts[-1] != self._query:
            self.begin(agent.user_texts[-1])

    def take_found(self) -> AddedBlocks:
        """Return found memories, once, with a transcript record; the caller must write both with the next message."""
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
        """Return found memories as a block for the message with a turn's tool results; empty if none were found."""
        return self.take_found()

    async def on_compacted(self, _agent: Agent, _compacted: Compacted) -> None:
        """Allow all memories to be shown again, because the compaction has removed them from the context."""
        self._shown.clear()

    async def handle(self, query: str) -> None:
        """Search memories that fit *query*, keep them for the next message, log the query; a failure is an event."""
        began = trio.current_time()
        try:
            survey = await trio.to_thread.run_sync(self._recaller.survey, self._known())
            if not survey.files and not survey.left_out:
                return
            chosen = await self._choose(query, survey)
            await self._make_ready(chosen, survey, began)
            for store in self._stores:
                paths = [place.path for place in chosen.places if place.directory == store.directory]
                await trio.to_thread.run_sync(log_query, store.directory, query, paths, self._agent.clock)
        except (sqlite3.Error, StoreError, OSError) as exc:
            self._agent.report_failure(PURPOSE, exc)

    async def _choose(self, query: str, survey: Survey) -> _Chosen:
        """Select memories that fit *query*, by the configured model; without one, or if it fails, by local ranking."""
        cost, most = Decimal(0), self._settings.most
        if self._by == "model" and survey.files:
            offering = partial(self._recaller.candidates, query, survey, trio.from_thread.check_cancelled)
            try:
                offered = await trio.to_thread.run_sync(offering)
                model = known_models().get(self._settings.model)
                names, cost = await choose_memories(RecallCaller.of(self._agent), model, query, offered, most)
            except (*CALL_FAILURES, ConfigInvalid) as exc:
                self._agent.report_failure(PURPOSE, f"the recall model failed: {exc}; the local ranker chooses instead")
            else:
                if names is not None:
                    named = self._recaller.name_locations(list(survey.files))
                    others = [named[name] for name in offered if name not in names]
                    return _Chosen(by="model", places=[named[name] for name in names], others=others, cost=cost)
                failure = "the model's answer is no list of memories; the local ranker chooses instead"
                self._agent.report_failure(PURPOSE, failure)
        ranking = partial(self._recaller.rank, query, survey, trio.from_thread.check_cancelled, most + REPORTED)
        ranked = await trio.to_thread.run_sync(ranking)
        return _Chosen(by="local", places=ranked[:most], others=ranked[most:], cost=cost)

    async def _make_ready(self, chosen: _Chosen, survey: Survey, began: float) -> None:
        """Load *chosen* memories for the next message, up to the agent's limit of bytes; emit the event `Recalled`."""
        loaded = await trio.to_thread.run_sync(self._recaller.load, chosen.places)
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
        left_out |= dict.fromkeys((str(place.file) for place in chosen.others[:REPORTED]), "others fit better")
        self._ready = ready
        self._agent.emit(
            Recalled(
                by=chosen.by,
                candidates=len(survey.files),
                chosen=list(ready),
                left_out=dict(list(left_out.items())[:REPORTED]),
                bytes=sum(len(text.encode()) for text in ready.values()),
                seconds=round(trio.current_time() - began, 6),
                cost_usd=format(chosen.cost, "f"),
            )
        )

    def _known(self) -> set[str]:
        """Return the paths of files that the model has seen: memories since the last compaction, and files read."""
        return self._shown | self._agent.workspace.seen.known().keys()

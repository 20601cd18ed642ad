"""One dream: a helper consolidates a copy of the memory, and its edits become a change."""

import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Literal

import attrs
import msgspec
import trio

from coterie.agents.errors import BudgetSpent, ControlLost, ModelError, ReplyMalformed
from coterie.agents.events.layer_events import Dreamed, MemoryChanged
from coterie.agents.layers.layer6_dreaming.dream_sessions import TRANSCRIPT, lines_of, transcript_directory
from coterie.agents.loop.agent import Agent, ToolAnswer
from coterie.agents.loop.forks.helper import HelperStart, run_helper
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.reply import Reply
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.helper_rights import HelperRights
from coterie.agents.prompts import render
from coterie.memory.dreaming.apply_hunks import apply_hunks
from coterie.memory.dreaming.dream_change import TURNS_KEPT, DreamChange, new_dream_id
from coterie.memory.dreaming.dream_lock import DreamLock, acquire_dream_lock
from coterie.memory.dreaming.proposal import DRY, Proposal, propose
from coterie.memory.dreaming.recall_check import compare_recall
from coterie.memory.dreaming.working_copy import WorkingCopy, copy_store
from coterie.memory.errors import StoreError
from coterie.memory.layer_settings import DreamingSettings
from coterie.memory.recall.query_log import read_queries
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_index import MOST_BYTES, MOST_LINES
from coterie.memory.store.memory_store import MemoryStore

SHOWN = 300
"""Characters of a turn that are kept."""

State = Literal["starting", "updating", "completed", "failed", "killed"]


@attrs.define(eq=False)
class DreamProgress:
    """One dream: its state, what it cost, and its last turns."""

    _model: Model
    _tell: Callable[[Dreamed], None]
    state: State = "starting"
    cost: Decimal = Decimal(0)
    replies: int = 0
    turns: deque[str] = attrs.field(factory=lambda: deque(maxlen=TURNS_KEPT))
    """What the model said and called."""

    def count_reply(self, reply: Reply, answers: Sequence[ToolAnswer]) -> bool:
        """Count *reply*; with the first file that it has written the dream is updating. Never ends it."""
        self.replies += 1
        self.cost += self._model.cost(reply.usage)
        calls = [f"{call['name']} {_subject(call['input'])}".rstrip() for call in reply.tool_calls]
        self.turns.append("; ".join([*([reply.text.strip()] if reply.text.strip() else []), *calls])[:SHOWN])
        wrote = any(answer.call["name"] in HelperRights.writing and not answer.result.is_error for answer in answers)
        if wrote and self.state == "starting":
            self.enter("updating")
        return False

    def enter(self, state: State, change: DreamChange | None = None, reason: str | None = None) -> None:
        """Be in *state*, and tell."""
        self.state = state
        told = Dreamed(state=state, reason=reason, cost_usd=format(self.cost, "f"))
        if change is not None:
            told = msgspec.structs.replace(
                told,
                change=change.id if change.files else None,
                applied=change.count("applied"),
                waiting=change.count("waiting"),
                dropped=change.count("dropped"),
                seconds=change.seconds,
            )
        self._tell(told)


def _subject(arguments: object) -> str:
    """What a call is about, as far as one argument says it."""
    given = arguments if isinstance(arguments, dict) else {}
    return str(next((given[name] for name in ("file_path", "pattern", "path", "command") if name in given), ""))


PURPOSE = "dream"
MOST_SESSIONS = 50
"""Sessions whose transcripts a dream is told of, the newest."""
FAILURES = (BudgetSpent, ModelError, ReplyMalformed, ControlLost, StoreError, OSError, sqlite3.Error)
"""What a dream may fail by. Whoever listens on the control line ends the agent when that is lost."""
CLEAN_UP = 10.0
"""Seconds that putting everything back may take."""


@attrs.frozen(kw_only=True)
class Dreamer:
    """Dreams of one store, for one agent."""

    agent: Agent
    store: MemoryStore
    settings: DreamingSettings
    author: Callable[[], Author]
    """Who the agent is."""
    scratch: Path
    """Where the copy is made; what a dream left there that was killed is removed."""
    authority: Authorizer | None = None
    """What its rules deny, the helper is denied too."""

    async def dream(
        self, sessions: Sequence[Path], *, is_dry: bool = False, progress: DreamProgress | None = None
    ) -> DreamChange:
        """Consolidate the store with the transcripts of *sessions*, which are directories, the newest first.

        It need not be due. With *is_dry* nothing is applied, and the change waits to be approved. Every state is told.
        Whatever happens before the change is applied, failure and cancellation included, leaves the memory and the time
        of the last dream as they were, and no copy. Raises `DreamRefused` while another dream runs, and then nothing is
        told; other `StoreError`, `OSError`, and as `run_helper` does.
        """
        progress = progress or DreamProgress(self.agent.model, self.agent.emit)
        lock = await trio.to_thread.run_sync(acquire_dream_lock, self.store.directory, self.agent.clock)
        try:
            progress.enter("starting")
            change = await self._dream(sessions[:MOST_SESSIONS], progress, lock, is_dry=is_dry)
            progress.enter("completed", change)
        except FAILURES as exc:
            progress.enter("failed", reason=str(exc))
            raise
        finally:
            with trio.CancelScope(deadline=trio.current_time() + CLEAN_UP, shield=True):
                await trio.to_thread.run_sync(lock.release)
            if progress.state in ("starting", "updating"):
                progress.enter("killed")
        return change

    async def _dream(
        self, sessions: Sequence[Path], progress: DreamProgress, lock: DreamLock, *, is_dry: bool
    ) -> DreamChange:
        began, id_ = trio.current_time(), new_dream_id(self.agent.clock)
        copy = partial(copy_store, self.store, self.scratch, trio.from_thread.check_cancelled)
        copied = await trio.to_thread.run_sync(copy)
        try:
            said = await self._ask(copied, sessions, progress)
            author = attrs.evolve(self.author(), by="dream", why=f"dream {id_}")
            change = DreamChange(
                id=id_,
                at=self.agent.clock.now(),
                session=author.session,
                agent=author.agent,
                turns=tuple(progress.turns),
                cost_usd=format(progress.cost, "f"),
                seconds=round(trio.current_time() - began, 6),
            )
            proposal = await self._propose(copied, change, said, sessions)
            proposal = proposal.hold_back(DRY) if is_dry else proposal
            # In one thread: whoever cancels now finds all of it done.
            conclude = partial(self._conclude, proposal, author, lock, is_dry=is_dry)
            change, made = await trio.to_thread.run_sync(conclude)
        finally:
            with trio.CancelScope(deadline=trio.current_time() + CLEAN_UP, shield=True):
                await trio.to_thread.run_sync(copied.remove)
        for memory in made:
            self.agent.emit(MemoryChanged(path=memory.path, change=memory.id, action=memory.action, by="dream"))
        return change

    async def _ask(self, copied: WorkingCopy, sessions: Sequence[Path], progress: DreamProgress) -> str:
        """Let a helper work on the copy; returns its last words."""
        rights = HelperRights(
            readable=tuple(map(transcript_directory, sessions)),
            writable=(copied.work, copied.evidence),
            authority=self.authority,
        )
        facts = {
            "date": time.strftime("%Y-%m-%d", time.localtime(self.agent.clock.now())),
            "directory": str(copied.work),
            "evidence": str(copied.evidence),
            "transcripts": "\n".join(f"- {transcript_directory(session)}/*/{TRANSCRIPT}" for session in sessions)
            or "(none)",
            "turns": str(self.settings.turns),
            "lines": str(MOST_LINES),
            "bytes": f"{MOST_BYTES:,}",
        }
        start = attrs.evolve(HelperStart.of(self.agent), number=self.agent.request_counts[PURPOSE] + 1)
        try:
            reply = await run_helper(
                self.agent,
                render("dream", **facts),
                PURPOSE,
                max_turns=self.settings.turns,
                denial=rights.denial,
                start=start,
                until=progress.count_reply,
            )
        finally:
            self.agent.request_counts[PURPOSE] += progress.replies
        return reply.text

    async def _propose(self, copied: WorkingCopy, change: DreamChange, said: str, sessions: Sequence[Path]) -> Proposal:
        def draft() -> Proposal:
            proposal = propose(copied, change, self.settings.deletions, trio.from_thread.check_cancelled)
            return proposal.add_evidence(copied, said, lines_of(sessions))

        proposal = await trio.to_thread.run_sync(draft)
        if not proposal.change.files:
            return proposal
        queries = await trio.to_thread.run_sync(read_queries, self.store.directory)
        # It reads, and leaves nothing, but takes its time in a large store: who has no use for it does not wait.
        recall = await trio.to_thread.run_sync(compare_recall, copied, queries, abandon_on_cancel=True)
        return proposal.add_recall_test(recall)

    def _conclude(
        self, proposal: Proposal, author: Author, lock: DreamLock, *, is_dry: bool
    ) -> tuple[DreamChange, list[MemoryChange]]:
        """Apply what needs no approval, keep the rest, and be the last dream."""
        change = proposal.change
        if change.files:
            change = apply_hunks(self.store, change, proposal.chosen, author)
        if not is_dry:
            lock.complete()
        is_applied = change.count("applied") > 0
        return change, [made for made in self.store.changes() if made.group == change.group] if is_applied else []

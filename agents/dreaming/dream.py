"""One dream: a helper works on a copy of the memory, and what it did becomes a change."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import attrs
import trio

from coterie.agents.agent import Agent
from coterie.agents.dreaming.progress import Progress
from coterie.agents.dreaming.transcripts import TRANSCRIPT, lines_of, transcripts_of
from coterie.agents.errors import BudgetSpent, ControlLost, ModelError, ReplyMalformed
from coterie.agents.events import MemoryChanged
from coterie.agents.forks import HelperStart, ask_helper
from coterie.agents.permissions import Authority
from coterie.agents.permissions.helper_rights import HelperRights
from coterie.agents.prompt import render
from coterie.memory.dreaming.applying import apply_hunks
from coterie.memory.dreaming.change import Deletions, DreamChange, new_id
from coterie.memory.dreaming.copy import Copied, copy_store
from coterie.memory.dreaming.drafting import DRY, Proposal, propose
from coterie.memory.dreaming.gates import GateLimits
from coterie.memory.dreaming.lock import HeldLock, take_lock
from coterie.memory.dreaming.recall_check import compare_recall
from coterie.memory.errors import StoreError
from coterie.memory.recall.queries import past_queries
from coterie.memory.store.change import Author, Change
from coterie.memory.store.index import MOST_BYTES, MOST_LINES
from coterie.memory.store.store import Store

PURPOSE = "dream"
MOST_SESSIONS = 50
"""Sessions whose transcripts a dream is told of, the newest."""
FAILURES = (BudgetSpent, ModelError, ReplyMalformed, ControlLost, StoreError, OSError, sqlite3.Error)
"""What a dream may fail by. Whoever listens on the control line ends the agent when that is lost."""
CLEAN_UP = 10.0
"""Seconds that putting everything back may take."""


@attrs.frozen(kw_only=True)
class DreamLimits:
    """When a dream is due, and what it may do."""

    is_enabled: bool = True
    hours: float = 24.0
    scan_minutes: float = 10.0
    sessions: int = 5
    turns: int = 30
    deletions: Deletions = "ask"
    drain: float = 60.0
    """Seconds that a session waits for it at its end."""

    @property
    def gates(self) -> GateLimits:
        """When it is due."""
        return GateLimits(
            is_enabled=self.is_enabled, hours=self.hours, scan_minutes=self.scan_minutes, sessions=self.sessions
        )


@attrs.frozen(kw_only=True)
class Dreamer:
    """Dreams of one store, for one agent."""

    agent: Agent
    store: Store
    limits: DreamLimits
    author: Callable[[], Author]
    """Who the agent is."""
    scratch: Path
    """Where the copy is made; what a dream left there that was killed is removed."""
    authority: Authority | None = None
    """What its rules deny, the helper is denied too."""

    async def dream(
        self, sessions: Sequence[Path], *, is_dry: bool = False, progress: Progress | None = None
    ) -> DreamChange:
        """Consolidate the store with the transcripts of *sessions*, which are directories, the newest first.

        It need not be due. With *is_dry* nothing is applied, and the change waits to be approved. Every state is told.
        Whatever happens before the change is applied, failure and cancellation included, leaves the memory and the time
        of the last dream as they were, and no copy. Raises `DreamRefused` while another dream runs, and then nothing is
        told; other `StoreError`, `OSError`, and as `ask_helper` does.
        """
        progress = progress or Progress(self.agent.model, self.agent.tell)
        lock = await trio.to_thread.run_sync(take_lock, self.store.directory, self.agent.clock)
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
        self, sessions: Sequence[Path], progress: Progress, lock: HeldLock, *, is_dry: bool
    ) -> DreamChange:
        began, id_ = trio.current_time(), new_id(self.agent.clock)
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
            proposal = proposal.held(DRY) if is_dry else proposal
            # In one thread: whoever cancels now finds all of it done.
            conclude = partial(self._conclude, proposal, author, lock, is_dry=is_dry)
            change, made = await trio.to_thread.run_sync(conclude)
        finally:
            with trio.CancelScope(deadline=trio.current_time() + CLEAN_UP, shield=True):
                await trio.to_thread.run_sync(copied.remove)
        for memory in made:
            self.agent.tell(MemoryChanged(path=memory.path, change=memory.id, action=memory.action, by="dream"))
        return change

    async def _ask(self, copied: Copied, sessions: Sequence[Path], progress: Progress) -> str:
        """Let a helper work on the copy; returns its last words."""
        rights = HelperRights(
            readable=tuple(map(transcripts_of, sessions)),
            writable=(copied.work, copied.evidence),
            authority=self.authority,
        )
        facts = {
            "date": time.strftime("%Y-%m-%d", time.localtime(self.agent.clock.now())),
            "directory": str(copied.work),
            "evidence": str(copied.evidence),
            "transcripts": "\n".join(f"- {transcripts_of(session)}/*/{TRANSCRIPT}" for session in sessions) or "(none)",
            "turns": str(self.limits.turns),
            "lines": str(MOST_LINES),
            "bytes": f"{MOST_BYTES:,}",
        }
        start = attrs.evolve(HelperStart.of(self.agent), number=self.agent.asked[PURPOSE] + 1)
        try:
            reply = await ask_helper(
                self.agent,
                render("dream", **facts),
                PURPOSE,
                max_turns=self.limits.turns,
                denial=rights.denial,
                start=start,
                until=progress.take,
            )
        finally:
            self.agent.asked[PURPOSE] += progress.replies
        return reply.text

    async def _propose(self, copied: Copied, change: DreamChange, said: str, sessions: Sequence[Path]) -> Proposal:
        def draft() -> Proposal:
            proposal = propose(copied, change, self.limits.deletions, trio.from_thread.check_cancelled)
            return proposal.justified(copied, said, lines_of(sessions))

        proposal = await trio.to_thread.run_sync(draft)
        if not proposal.change.files:
            return proposal
        queries = await trio.to_thread.run_sync(past_queries, self.store.directory)
        # It reads, and leaves nothing, but takes its time in a large store: who has no use for it does not wait.
        recall = await trio.to_thread.run_sync(compare_recall, copied, queries, abandon_on_cancel=True)
        return proposal.tested(recall)

    def _conclude(
        self, proposal: Proposal, author: Author, lock: HeldLock, *, is_dry: bool
    ) -> tuple[DreamChange, list[Change]]:
        """Apply what needs no approval, keep the rest, and be the last dream."""
        change = proposal.change
        if change.files:
            change = apply_hunks(self.store, change, proposal.chosen, author)
        if not is_dry:
            lock.complete()
        is_applied = change.count("applied") > 0
        return change, [made for made in self.store.changes() if made.group == change.group] if is_applied else []

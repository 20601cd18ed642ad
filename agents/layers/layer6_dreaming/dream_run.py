"""One dream: a helper (short fork of the agent) tidies a copy of the memories; its edits become a reviewable change."""

import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import attrs
import msgspec
import trio

from coterie.agents.events.layer_events import Dreamed, MemoryChanged
from coterie.agents.loop.agent import Agent, ToolAnswer
from coterie.agents.loop.forks.helper import run_helper
from coterie.agents.loop.model.client import CALL_FAILURES
from coterie.agents.loop.model.reply import Reply
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.helper_rights import HelperRights
from coterie.agents.prompts import render
from coterie.clock import Clock
from coterie.memory.dreaming.apply_hunks import apply_hunks
from coterie.memory.dreaming.dream_change import TURNS_KEPT, DreamChange, new_dream_id
from coterie.memory.dreaming.dream_lock import DreamLock, SessionActivity, acquire_dream_lock
from coterie.memory.dreaming.proposal import DRY, Proposal, ReferenceExists, propose
from coterie.memory.dreaming.recall_check import compare_recall
from coterie.memory.dreaming.working_copy import WorkingCopy, copy_store
from coterie.memory.errors import StoreError
from coterie.memory.layer_settings import DreamingSettings
from coterie.memory.recall.query_log import read_queries
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_index import MOST_BYTES, MOST_LINES
from coterie.memory.store.memory_store import MemoryStore
from coterie.session_directory import TRANSCRIPT

AGENTS = "agents"
"""Name of the directory, inside a session's directory, with one directory for each agent and its transcript."""
SHOWN = 300
"""Maximum characters of one turn of the model in the stored record of a dream (consolidation of memories)."""

State = Literal["starting", "updating", "completed", "failed", "killed"]


@attrs.define(eq=False)
class DreamProgress:
    """State, cost and last turns of one dream (consolidation of memories by a helper) while it runs."""

    _agent: Agent
    state: State = "starting"
    cost: Decimal = Decimal(0)
    replies: int = 0
    turns: deque[str] = attrs.field(factory=lambda: deque(maxlen=TURNS_KEPT))
    """The last turns of the helper, one line each: its text, then its tool calls with their subjects."""

    def count_reply(self, reply: Reply, answers: Sequence[ToolAnswer]) -> bool:
        """Count *reply*; the first successful write sets `state` to `updating`. Returns False: the dream goes on."""
        self.replies += 1
        self.cost += self._agent.model.cost(reply.usage)
        calls = []
        for call in reply.tool_calls:
            given = call["input"] if isinstance(call["input"], dict) else {}
            subject = next((given[name] for name in ("file_path", "pattern", "path", "command") if name in given), "")
            calls.append(f"{call['name']} {subject}".rstrip())
        self.turns.append("; ".join([*([reply.text.strip()] if reply.text.strip() else []), *calls])[:SHOWN])
        wrote = any(answer.call["name"] in HelperRights.writing and not answer.result.is_error for answer in answers)
        if wrote and self.state == "starting":
            self.enter("updating")
        return False

    def enter(self, state: State, change: DreamChange | None = None, reason: str | None = None) -> None:
        """Set the state of the dream and emit an event; *change* adds the numbers of its edits by their states."""
        self.state = state
        event = Dreamed(state=state, reason=reason, cost_usd=format(self.cost, "f"))
        if change is not None:
            event = msgspec.structs.replace(
                event,
                change=change.id if change.files else None,
                applied=change.count("applied"),
                waiting=change.count("waiting"),
                dropped=change.count("dropped"),
                seconds=change.seconds,
            )
        self._agent.emit(event)


def recent_sessions(directory: Path, clock: Clock) -> list[SessionActivity]:
    """Return the sessions in *directory* that have a transcript, each with the time of its last write. Blocks."""
    found = []
    for session in directory.glob("*/"):
        times = [path.stat().st_mtime for path in session.glob(f"{AGENTS}/*/{TRANSCRIPT}")]
        if times:
            # File times come from the system clock; add the offset of the session's clock.
            found.append(SessionActivity(directory=session, at=max(times) + clock.offset))
    return found


def lines_of(sessions: Sequence[Path]) -> ReferenceExists:
    """Return a function of session, agent and line number: True if that agent's transcript in *sessions* has it."""
    by_name = {session.name: session for session in sessions}

    def count(session: str, agent: str) -> int:
        if session not in by_name or agent in (".", ".."):
            return 0
        path = by_name[session] / AGENTS / agent / TRANSCRIPT
        try:
            with path.open("rb") as file:
                return sum(1 for _ in file)
        except OSError:
            return 0

    counted: Callable[[str, str], int] = lru_cache(maxsize=256)(count)
    return lambda session, agent, line: 0 < line <= counted(session, agent)


PURPOSE = "dream"
MOST_SESSIONS = 50
"""Maximum number of sessions whose transcripts a dream (consolidation of memories) may read: the newest ones."""
FAILURES = (*CALL_FAILURES, StoreError, OSError, sqlite3.Error)
"""Errors that can end a dream: of a model call, of the memory store, of the disk, and of the recall index (SQLite)."""
CLEAN_UP = 10.0
"""Maximum seconds for each clean-up step after a dream: release of the lock, removal of the working copy."""


@attrs.frozen(kw_only=True)
class Dreamer:
    """Runs dreams for one agent. A dream consolidates the memories in one store."""

    agent: Agent
    store: MemoryStore
    settings: DreamingSettings
    author: Callable[[], Author]
    """Function that returns the agent and its turn, as author of changes in the history of the memory store."""
    scratch: Path
    """Directory in which a dream creates its working copy of the store; a copy left by a killed dream is removed."""
    authority: Authorizer | None = None
    """Permission rules of the agent, whose denials apply to the helper (fork of it) too; None to apply no rules."""

    async def dream(
        self, sessions: Sequence[Path], *, is_dry: bool = False, progress: DreamProgress | None = None
    ) -> DreamChange:
        """Run one dream, even if none is due; return its change. Its helper reads the session directories *sessions*.

        With *is_dry* the whole change waits for approval. Each state emits an event. Failure and cancellation before
        the change is applied leave the memories and the time of the last dream unchanged, and remove the working copy.
        Raises `DreamRefused`, without an event, while another dream runs; other `StoreError`, `OSError`,
        `sqlite3.Error`, and as `run_helper` does.
        """
        progress = progress or DreamProgress(self.agent)
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
            # In one thread call, so that cancellation cannot interrupt it half way.
            conclude = partial(self._conclude, proposal, author, lock, is_dry=is_dry)
            change, made = await trio.to_thread.run_sync(conclude)
        finally:
            with trio.CancelScope(deadline=trio.current_time() + CLEAN_UP, shield=True):
                await trio.to_thread.run_sync(copied.remove)
        for memory in made:
            self.agent.emit(MemoryChanged(path=memory.path, change=memory.id, action=memory.action, by="dream"))
        return change

    async def _ask(self, copied: WorkingCopy, sessions: Sequence[Path], progress: DreamProgress) -> str:
        """Let a helper edit the working copy, with read access to *sessions*; return the text of its last reply."""
        rights = HelperRights(
            readable=tuple(session / AGENTS for session in sessions),
            writable=(copied.work, copied.evidence),
            authority=self.authority,
        )
        facts = {
            "date": time.strftime("%Y-%m-%d", time.localtime(self.agent.clock.now())),
            "directory": str(copied.work),
            "evidence": str(copied.evidence),
            "transcripts": "\n".join(f"- {session / AGENTS}/*/{TRANSCRIPT}" for session in sessions) or "(none)",
            "turns": str(self.settings.turns),
            "lines": str(MOST_LINES),
            "bytes": f"{MOST_BYTES:,}",
        }
        reply = await run_helper(
            self.agent,
            render("dream", **facts),
            PURPOSE,
            max_turns=self.settings.turns,
            denial=rights.denial,
            until=progress.count_reply,
        )
        return reply.text

    async def _propose(self, copied: WorkingCopy, change: DreamChange, said: str, sessions: Sequence[Path]) -> Proposal:
        def draft() -> Proposal:
            proposal = propose(copied, change, self.settings.deletions, trio.from_thread.check_cancelled)
            return proposal.add_evidence(copied, said, lines_of(sessions))

        proposal = await trio.to_thread.run_sync(draft)
        if not proposal.change.files:
            return proposal
        queries = await trio.to_thread.run_sync(read_queries, self.store.directory)
        # Abandoned on cancellation, because it only reads and may take long in a large store.
        recall = await trio.to_thread.run_sync(compare_recall, copied, queries, abandon_on_cancel=True)
        return proposal.add_recall_test(recall)

    def _conclude(
        self, proposal: Proposal, author: Author, lock: DreamLock, *, is_dry: bool
    ) -> tuple[DreamChange, list[MemoryChange]]:
        """Apply the hunks (edits) that need no approval; store the change and, unless *is_dry*, the dream's time."""
        change = proposal.change
        if change.files:
            change = apply_hunks(self.store, change, proposal.chosen, author)
        if not is_dry:
            lock.complete()
        is_applied = change.count("applied") > 0
        return change, [made for made in self.store.changes() if made.group == change.group] if is_applied else []

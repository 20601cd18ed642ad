"""Memory of one agent: its stores, its manual and the author of its changes."""

import contextlib
from pathlib import Path

import attrs

from coterie.agents.events.layer_events import MemoryChanged
from coterie.agents.loop.agent import Agent
from coterie.agents.runtime.setup.agent_files import AgentFiles, AgentWork
from coterie.agents.runtime.setup.context_texts import index_text, memory_manual, read_indexes
from coterie.agents.runtime.setup.memory_scopes import scopes_for
from coterie.agents.tools.workspace.memory_files import WritableMemory
from coterie.memory.errors import StoreError
from coterie.memory.store.change import Author, MemoryChange, Writer
from coterie.memory.store.memory_store import MemoryStore, exclude_from_git, seed_store
from coterie.memory.store.scopes import MemoryScope, snapshot_directory
from coterie.paths import project_directory, project_root
from coterie.session_directory import MAIN

REASON_LENGTH = 100
"""Characters of the task that the history of a memory has as the reason for a change."""


@attrs.define(eq=False, kw_only=True)
class AgentMemory:
    """What one agent remembers with. Made by `open_agent_memory`."""

    places: tuple[MemoryScope, ...]
    stores: tuple[MemoryStore, ...]
    manual: str
    """How to use them, for the system prompt; empty without any."""
    files: AgentFiles
    agent: Agent | None = None
    """Whose they are, once it is made."""

    @property
    def shared(self) -> MemoryStore | None:
        """That of the project; None for an agent that has only one of its kind, or none."""
        pairs = zip(self.places, self.stores, strict=True)
        return next((store for place, store in pairs if place.kind is None), None)

    def author(self, by: Writer = "agent") -> Author:
        """Who changes something now, and why."""
        assert self.agent is not None, "nobody changes anything before it is made"
        words = " ".join(self.agent.user_texts[-1].split()) if self.agent.user_texts else ""
        why = words if len(words) <= REASON_LENGTH else f"{words[:REASON_LENGTH]}..."
        turn = max(1, self.agent.turn - 1)  # the one whose calls are run; the agent counts the next
        return Author(by=by, agent=self.files.name, session=self.files.session.id, turn=turn, why=why)

    def writable(self) -> WritableMemory | None:
        """The right to change them; None without any."""
        return WritableMemory(stores=self.stores, author=self.author, on_change=self._emit) if self.stores else None

    def index_text(self) -> str:
        """The indexes as they are now. Blocks on the disk."""
        return index_text(read_indexes(self.places))

    def _emit(self, change: MemoryChange) -> None:
        self.files.log.emit(MemoryChanged(path=change.path, change=change.id, action=change.action, by="agent"))


def open_agent_memory(work: AgentWork, seat: AgentFiles) -> AgentMemory:
    """The memories of the agent of *seat*; without any where that is switched off, and for a bare run.

    The lead has that of the project, and so have its forks, whose conversation speaks of it. Every agent has that of
    its kind. Blocks on the disk. Raises `ConfigInvalid`.
    """
    is_lead = seat.name == MAIN or (work.fork is not None and len(work.parent_settings) == 1)
    settings = work.settings
    places = () if work.is_bare else scopes_for(work.project, settings, work.definition, is_lead=is_lead)
    stores = tuple(MemoryStore.at(place.directory, seat.clock) for place in places)
    for place, store in zip(places, stores, strict=True):
        _prepare(place, store, work.project)
    told = memory_manual(places, settings.memory, work.project)
    return AgentMemory(places=places, stores=stores, manual=told, files=seat)


def _prepare(place: MemoryScope, store: MemoryStore, project: Path) -> None:
    """Keep a local memory out of git, and let an empty one begin with the project's snapshot."""
    if place.kind is None or place.scope == "project":
        return
    # Without it the agent works all the same: a memory is a convenience here, and the disk may be read-only.
    with contextlib.suppress(OSError, StoreError):
        if place.scope == "local":
            exclude_from_git(project_root(project), place.directory.parent)
        seed_store(store, snapshot_directory(place.kind, project_directory(project)))

"""Memory of one agent: its stores, its instructions and the author of its changes."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import attrs

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.events.layer_events import MemoryChanged
from coterie.agents.loop.agent import Agent
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.runtime.setup.agent_files import AgentFiles
from coterie.agents.runtime.setup.context_texts import memory_manual
from coterie.agents.runtime.setup.memory_scopes import scopes_for
from coterie.agents.tools.workspace.file_change import WritableMemory
from coterie.memory.errors import StoreError
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_store import MemoryStore, exclude_from_git, seed_store
from coterie.memory.store.scopes import MemoryScope, snapshot_directory
from coterie.paths import project_directory, project_root

REASON_LENGTH = 100
"""Maximum length of the reason in the history of a memory, in characters of the task."""


@attrs.frozen(kw_only=True)
class AgentMemory:
    """Memories of one agent. Created by `open_agent_memory`."""

    places: tuple[MemoryScope, ...]
    stores: tuple[MemoryStore, ...]
    manual: str
    """Instructions for using the memories, for the system prompt; empty without memories."""
    files: AgentFiles

    @property
    def shared(self) -> MemoryStore | None:
        """Store of the project; None for an agent without project memory."""
        pairs = zip(self.places, self.stores, strict=True)
        return next((store for place, store in pairs if place.kind is None), None)

    def author(self, agent: Agent) -> Author:
        """Return the author of a change that *agent*, the owner of these memories, makes now."""
        text = " ".join(agent.user_texts[-1].split()) if agent.user_texts else ""
        reason = text if len(text) <= REASON_LENGTH else f"{text[:REASON_LENGTH]}..."
        # The agent has already counted the next turn; the change belongs to the turn whose calls run.
        turn = max(1, agent.turn - 1)
        return Author(by="agent", agent=self.files.name, session=self.files.session.id, turn=turn, why=reason)

    def writable(self, author: Callable[[], Author]) -> WritableMemory | None:
        """Return the write access of tools to the memories; None without memories."""
        return WritableMemory(stores=self.stores, author=author, on_change=self._emit) if self.stores else None

    def _emit(self, change: MemoryChange) -> None:
        self.files.log.emit(MemoryChanged(path=change.path, change=change.id, action=change.action, by="agent"))


def open_agent_memory(spec: AgentSpec, files: AgentFiles, definition: AgentDefinition | None) -> AgentMemory:
    """Open the memories of the agent of *spec*; none if memory is switched off, and for a bare run.

    The lead has the memory of the project, and so have its forks, because their conversation mentions it. Every agent
    has the memory of its type. Blocks on the disk. Raises `ConfigInvalid`.
    """
    is_lead = spec.is_lead or (spec.fork is not None and spec.depth == 1)
    settings = spec.settings
    places = () if spec.is_bare else scopes_for(spec.directory, settings, definition, is_lead=is_lead)
    stores = tuple(MemoryStore.at(place.directory, files.clock) for place in places)
    for place, store in zip(places, stores, strict=True):
        _prepare(place, store, spec.directory)
    manual = memory_manual(places, settings.memory, spec.directory)
    return AgentMemory(places=places, stores=stores, manual=manual, files=files)


def _prepare(place: MemoryScope, store: MemoryStore, project: Path) -> None:
    """Exclude a local memory from git, and fill an empty memory with the snapshot of the project."""
    if place.kind is None or place.scope == "project":
        return
    # Failures are ignored: both steps are a convenience, and the disk may be read-only.
    with contextlib.suppress(OSError, StoreError):
        if place.scope == "local":
            exclude_from_git(project_root(project), place.directory.parent)
        seed_store(store, snapshot_directory(place.kind, project_directory(project)))

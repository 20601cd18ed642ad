"""Memory of one agent: its stores, the instructions for its model, and the author that its changes record."""

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
"""Maximum characters of the user's text that the history of a memory keeps as the reason of a change."""


@attrs.frozen(kw_only=True)
class AgentMemory:
    """Memory stores of one agent, and the instructions for its model. Created by `open_agent_memory`."""

    places: tuple[MemoryScope, ...]
    stores: tuple[MemoryStore, ...]
    manual: str
    """Instructions for the model to use the memories, a part of the system prompt; empty without memories."""
    files: AgentFiles

    @property
    def shared(self) -> MemoryStore | None:
        """Store with the user's memory for the project; None if the agent has none, or only the memory of its type."""
        pairs = zip(self.places, self.stores, strict=True)
        return next((store for place, store in pairs if place.kind is None), None)

    def author(self, agent: Agent) -> Author:
        """Return the author of a memory change that *agent* makes now: name, session, turn, and the last user text."""
        text = " ".join(agent.user_texts[-1].split()) if agent.user_texts else ""
        reason = text if len(text) <= REASON_LENGTH else f"{text[:REASON_LENGTH]}..."
        # The agent has already counted the next turn; the change belongs to the turn whose calls run.
        turn = max(1, agent.turn - 1)
        return Author(by="agent", agent=self.files.name, session=self.files.session.id, turn=turn, why=reason)

    def writable(self, author: Callable[[], Author]) -> WritableMemory | None:
        """Return the object by which tools write memories and record *author*(); None for an agent without memory."""
        return WritableMemory(stores=self.stores, author=author, on_change=self._emit) if self.stores else None

    def _emit(self, change: MemoryChange) -> None:
        self.files.log.emit(MemoryChanged(path=change.path, change=change.id, action=change.action, by="agent"))


def open_agent_memory(spec: AgentSpec, files: AgentFiles, definition: AgentDefinition | None) -> AgentMemory:
    """Open the memory stores of the agent of *spec*. There are none if memory is off, and in a bare run (`--bare`).

    The lead has the memory of the project, and so have its forks, because their conversation mentions it. Every agent
    has the memory of its type, if the type has one. Blocks on the disk. Raises `ConfigInvalid`.
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
    """Fill a new user or local memory of an agent type from the project's snapshot; exclude a local one from git."""
    if place.kind is None or place.scope == "project":
        return
    # Failures are ignored: both steps are a convenience, and the disk may be read-only.
    with contextlib.suppress(OSError, StoreError):
        if place.scope == "local":
            exclude_from_git(project_root(project), place.directory.parent)
        seed_store(store, snapshot_directory(place.kind, project_directory(project)))

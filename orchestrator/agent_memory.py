"""The memories of one agent at work: what it is told of them, and under whose name it changes them."""

import contextlib
from pathlib import Path

import attrs

from coterie.agents.agent import Agent
from coterie.agents.events import MemoryChanged
from coterie.agents.project import project_directory, project_root
from coterie.agents.tools.memory_files import OpenMemory
from coterie.memory.errors import StoreError
from coterie.memory.store.change import Author, Change, Writer
from coterie.memory.store.places import MemoryPlace, snapshot_of
from coterie.memory.store.seeding import exclude_from_git, seed_store
from coterie.memory.store.store import Store
from coterie.orchestrator.memory_texts import index_text, manual, read_indexes
from coterie.orchestrator.remembering import places_for
from coterie.orchestrator.seat import Seat, Work
from coterie.orchestrator.session import MAIN

WHY = 100
"""Characters of the task that the history of a memory has as the reason for a change."""


@attrs.define(eq=False, kw_only=True)
class AgentMemory:
    """What one agent remembers with. Made by `memory_of`."""

    places: tuple[MemoryPlace, ...]
    stores: tuple[Store, ...]
    manual: str
    """How to use them, for the system prompt; empty without any."""
    seat: Seat
    agent: Agent | None = None
    """Whose they are, once it is made."""

    @property
    def shared(self) -> Store | None:
        """That of the project; None for an agent that has only one of its kind, or none."""
        pairs = zip(self.places, self.stores, strict=True)
        return next((store for place, store in pairs if place.kind is None), None)

    def author(self, by: Writer = "agent") -> Author:
        """Who changes something now, and why."""
        assert self.agent is not None, "nobody changes anything before it is made"
        words = " ".join(self.agent.words[-1].split()) if self.agent.words else ""
        why = words if len(words) <= WHY else f"{words[:WHY]}..."
        turn = max(1, self.agent.turn - 1)  # the one whose calls are run; the agent counts the next
        return Author(by=by, agent=self.seat.name, session=self.seat.session.id, turn=turn, why=why)

    def opened(self) -> OpenMemory | None:
        """The right to change them; None without any."""
        return OpenMemory(stores=self.stores, author=self.author, tell=self._tell) if self.stores else None

    def index_text(self) -> str:
        """The indexes as they are now. Blocks on the disk."""
        return index_text(read_indexes(self.places))

    def _tell(self, change: Change) -> None:
        self.seat.log.tell(MemoryChanged(path=change.path, change=change.id, action=change.action, by="agent"))


def memory_of(work: Work, seat: Seat) -> AgentMemory:
    """The memories of the agent of *seat*; without any where that is switched off, and for a bare run.

    The lead has that of the project, and so have its forks, whose conversation speaks of it. Every agent has that of
    its kind. Blocks on the disk. Raises `ConfigInvalid`.
    """
    is_lead = seat.name == MAIN or (work.fork is not None and len(work.above) == 1)
    settings = work.settings
    places = () if work.is_bare else places_for(work.project, settings, work.kind, is_lead=is_lead)
    stores = tuple(Store.at(place.directory, seat.clock) for place in places)
    for place, store in zip(places, stores, strict=True):
        _prepare(place, store, work.project)
    told = manual(places, settings.memory, work.project)
    return AgentMemory(places=places, stores=stores, manual=told, seat=seat)


def _prepare(place: MemoryPlace, store: Store, project: Path) -> None:
    """Keep a local memory out of git, and let an empty one begin with the project's snapshot."""
    if place.kind is None or place.scope == "project":
        return
    # Without it the agent works all the same: a memory is a convenience here, and the disk may be read-only.
    with contextlib.suppress(OSError, StoreError):
        if place.scope == "local":
            exclude_from_git(project_root(project), place.directory.parent)
        seed_store(store, snapshot_of(place.kind, project_directory(project)))

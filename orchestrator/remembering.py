"""Which memories there are for an agent: the directories by its kind and its project."""

import os
from collections.abc import Iterator
from pathlib import Path

from coterie.agents.definitions import Definition
from coterie.agents.errors import ConfigInvalid
from coterie.agents.home import home
from coterie.agents.project import project_directory, project_root
from coterie.memory.errors import MemoryRefused
from coterie.memory.store.places import (
    AGENT_MEMORY,
    DIRECTORY_VARIABLE,
    LOCAL_AGENT_MEMORY,
    AgentScope,
    MemoryPlace,
    agent_place,
    auto_place,
)
from coterie.orchestrator.session import slug
from coterie.orchestrator.settings import Settings


def project_memory(project: Path, settings: Settings) -> MemoryPlace:
    """The memory that a user has of *project*; all worktrees share it. Raises `ConfigInvalid`."""
    try:
        return auto_place(
            home(),
            slug(project_root(project)),
            variable=os.environ.get(DIRECTORY_VARIABLE),
            setting=settings.memory_directory,
        )
    except MemoryRefused as exc:
        raise ConfigInvalid(exc.path, exc.reason) from exc


def agent_memory(kind: Definition, project: Path) -> MemoryPlace | None:
    """The memory of agents of *kind* in *project*; None for a kind that keeps nothing."""
    if kind.memory is None:
        return None
    return agent_place(kind.name, kind.memory, home=home(), project=project_directory(project))


def places_for(project: Path, settings: Settings, kind: Definition | None, *, is_lead: bool) -> tuple[MemoryPlace, ...]:
    """The memories of one agent: the project's for the lead, and that of its kind. Raises `ConfigInvalid`."""
    if not settings.memory.enabled:
        return ()
    own = None if kind is None else agent_memory(kind, project)
    return (*((project_memory(project, settings),) if is_lead else ()), *((own,) if own is not None else ()))


def existing_places(project: Path, settings: Settings) -> list[MemoryPlace]:
    """The memory of *project*, and all memories of kinds of agents that are there. Blocks; raises `ConfigInvalid`."""
    ours = project_directory(project)
    return [
        project_memory(project, settings),
        *_agent_places(home() / AGENT_MEMORY, "user"),
        *_agent_places(ours / AGENT_MEMORY, "project"),
        *_agent_places(ours / LOCAL_AGENT_MEMORY, "local"),
    ]


def _agent_places(parent: Path, scope: AgentScope) -> Iterator[MemoryPlace]:
    for directory in sorted(parent.glob("*/")):
        yield MemoryPlace(scope=scope, kind=directory.name, directory=directory)

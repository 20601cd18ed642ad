"""Memory directories of an agent, by its definition and its project."""

import os
from collections.abc import Iterator
from pathlib import Path

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.settings import Settings
from coterie.errors import ConfigInvalid
from coterie.memory.errors import MemoryRefused
from coterie.memory.store.scopes import (
    AGENT_MEMORY,
    DIRECTORY_VARIABLE,
    LOCAL_AGENT_MEMORY,
    AgentScopeName,
    MemoryScope,
    agent_scope,
    project_scope,
)
from coterie.paths import home_directory, project_directory, project_root
from coterie.session_directory import project_slug


def project_memory(project: Path, settings: Settings) -> MemoryScope:
    """The memory that a user has of *project*; all worktrees share it. Raises `ConfigInvalid`."""
    try:
        return project_scope(
            home_directory(),
            project_slug(project_root(project)),
            variable=os.environ.get(DIRECTORY_VARIABLE),
            setting=settings.memory_directory,
        )
    except MemoryRefused as exc:
        raise ConfigInvalid(exc.path, exc.reason) from exc


def agent_memory(kind: AgentDefinition, project: Path) -> MemoryScope | None:
    """The memory of agents of *kind* in *project*; None for a kind that keeps nothing."""
    if kind.memory is None:
        return None
    return agent_scope(kind.name, kind.memory, home=home_directory(), project=project_directory(project))


def scopes_for(
    project: Path, settings: Settings, kind: AgentDefinition | None, *, is_lead: bool
) -> tuple[MemoryScope, ...]:
    """The memories of one agent: the project's for the lead, and that of its kind. Raises `ConfigInvalid`."""
    if not settings.memory.enabled:
        return ()
    own = None if kind is None else agent_memory(kind, project)
    return (*((project_memory(project, settings),) if is_lead else ()), *((own,) if own is not None else ()))


def existing_scopes(project: Path, settings: Settings) -> list[MemoryScope]:
    """The memory of *project*, and all memories of kinds of agents that are there. Blocks; raises `ConfigInvalid`."""
    ours = project_directory(project)
    return [
        project_memory(project, settings),
        *_agent_places(home_directory() / AGENT_MEMORY, "user"),
        *_agent_places(ours / AGENT_MEMORY, "project"),
        *_agent_places(ours / LOCAL_AGENT_MEMORY, "local"),
    ]


def _agent_places(parent: Path, scope: AgentScopeName) -> Iterator[MemoryScope]:
    for directory in sorted(parent.glob("*/")):
        yield MemoryScope(scope=scope, kind=directory.name, directory=directory)

"""Directories of the memories (notes for later sessions) that an agent has, by its agent type and its project."""

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
    """Return the directory of the user's memory for *project*, shared by its worktrees. Raises `ConfigInvalid`."""
    try:
        return project_scope(
            home_directory(),
            project_slug(project_root(project)),
            variable=os.environ.get(DIRECTORY_VARIABLE),
            setting=settings.memory_directory,
        )
    except MemoryRefused as exc:
        raise ConfigInvalid(exc.path, exc.reason) from exc


def scopes_for(
    project: Path, settings: Settings, definition: AgentDefinition | None, *, is_lead: bool
) -> tuple[MemoryScope, ...]:
    """Return memory directories: *project*'s if *is_lead*, type's; none if memory is off. Raises `ConfigInvalid`."""
    if not settings.memory.enabled:
        return ()
    scopes = [project_memory(project, settings)] if is_lead else []
    if definition is not None and definition.memory is not None:
        home, shared = home_directory(), project_directory(project)
        scopes.append(agent_scope(definition.name, definition.memory, home=home, project=shared))
    return tuple(scopes)


def existing_scopes(project: Path, settings: Settings) -> list[MemoryScope]:
    """Return the memory directories of *project* and all agent types that have one. Blocks. Raises `ConfigInvalid`."""
    shared = project_directory(project)
    return [
        project_memory(project, settings),
        *_agent_scopes(home_directory() / AGENT_MEMORY, "user"),
        *_agent_scopes(shared / AGENT_MEMORY, "project"),
        *_agent_scopes(shared / LOCAL_AGENT_MEMORY, "local"),
    ]


def _agent_scopes(parent: Path, scope: AgentScopeName) -> Iterator[MemoryScope]:
    for directory in sorted(parent.glob("*/")):
        yield MemoryScope(scope=scope, kind=directory.name, directory=directory)

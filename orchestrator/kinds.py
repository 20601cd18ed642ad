"""The kind of agent that a run was asked for, laid over its settings."""

from pathlib import Path

import attrs

from coterie.agents.definitions import Definition, load_definitions
from coterie.agents.errors import ConfigInvalid
from coterie.orchestrator.settings import Settings


def of_a_kind(settings: Settings, project: Path) -> tuple[Settings, Definition | None]:
    """The settings of a run by the agent that they name, and its definition; blocks on the disk.

    What the command line or the machine's manager says weighs more than a definition, and a definition more than other
    files of settings. Raises `ConfigInvalid` for an unknown name, and for a project's definition that would let
    everything be done.
    """
    if settings.agent is None:
        return settings, None
    kind = load_definitions(project).get(settings.agent)
    permissions = settings.permissions
    if kind.permission_mode is not None and not settings.is_final("permissions.mode"):
        _check_mode(kind)
        permissions = attrs.evolve(permissions, mode=kind.permission_mode)
    model = None if settings.is_final("model") else kind.model
    turns = None if settings.is_final("max_turns") else kind.max_turns
    effort = None if settings.is_final("effort") else kind.effort
    settings = attrs.evolve(
        settings,
        permissions=permissions,
        model=model or settings.model,
        max_turns=turns or settings.max_turns,
        effort=effort or settings.effort,
    )
    return settings, kind


def _check_mode(kind: Definition) -> None:
    # A repository must not give itself the run of the machine it is checked out on.
    if kind.permission_mode == "bypassPermissions" and kind.scope in ("claude", "project"):
        reason = "a project's agent may not set bypassPermissions; give --permission-mode yourself"
        raise ConfigInvalid(str(kind.source), reason)

"""Settings of a run, merged from files, environment, flags and the agent definition."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.definitions.store import load_definitions
from coterie.agents.settings import (
    LOCAL_SETTINGS_FILE,
    MANAGED_FILE,
    SANDBOX_MODES,
    SETTINGS_FILE,
    SandboxSettings,
    Settings,
)
from coterie.errors import ConfigInvalid
from coterie.orchestrator.settings.setting_sources import GivenSettings, from_environment, from_file, from_flags
from coterie.paths import home_directory, project_directory

FORBIDDEN_TO_PROJECTS = {
    "sandbox.write": "it would open your files to commands",
    "sandbox.auto_allow": "it would let commands run that you were not asked about",
    "web.hosts": "what agents read here could be sent there",
}


def restrict_sandbox(given: GivenSettings, values: Mapping[str, Any]) -> GivenSettings:
    """*given*, of a project, without what would loosen the sandbox that *values* of weightier people make.

    Raises `ConfigInvalid` for what is not a project's to say at all.
    """
    for key, why in FORBIDDEN_TO_PROJECTS.items():
        if key in given.values:
            raise ConfigInvalid(given.source, f"{key} may not be set by a project: {why}; set it in your own settings")
    kept = dict(given.values)
    usual = SandboxSettings()
    mode = values.get("sandbox.mode", usual.mode)
    if SANDBOX_MODES.index(kept.get("sandbox.mode", mode)) < SANDBOX_MODES.index(mode):
        del kept["sandbox.mode"]
    if kept.get("sandbox.network") and not values.get("sandbox.network", usual.network):
        del kept["sandbox.network"]
    return attrs.evolve(given, values=kept)


PATHS = ("memory_directory", "memory.guidelines", "layers.notes.template", "layers.notes.prompt")
"""Settings that name files of the user's."""
HOOK_SWITCHES = ("hooks.enabled", "hooks.claude")
"""Settings with which a project could get rid of what the user wants to happen."""


def load_settings(
    project: Path, flags: Mapping[str, object], environ: Mapping[str, str], managed: Path = MANAGED_FILE
) -> Settings:
    """The settings of a run in *project*, a directory; its project's root holds the project's files.

    *flags* are values by dotted key, None for a flag that was not given. Of *environ* the variables
    `COTERIE_LAYERS_...`, `COTERIE_MEMORY_...` and `COTERIE_PROGRESS_...` are read. A later source replaces the value of
    an earlier one; lists add up; a project can only tighten the sandbox. Raises `ConfigInvalid`, naming the source and
    the key, for an unknown key, a wrong value and what a project may not set.
    """
    values: dict[str, Any] = {}
    sources: dict[str, tuple[str, ...]] = {}
    final: set[str] = set()
    for given in _in_order(project, flags, environ, managed):
        if given.is_of_project:
            given = restrict_sandbox(given, values)  # noqa: PLW2901 - what it may say is what it gives
        final.update(given.values if given.is_final else ())
        for key, value in given.values.items():
            if isinstance(value, tuple):
                added = tuple(item for item in dict.fromkeys(value) if item not in values.get(key, ()))
                values[key] = (*values.get(key, ()), *added)
                sources[key] = (*sources.get(key, ()), *(given.source for _ in added))
            else:
                values[key], sources[key] = value, (given.source,)
    return Settings.build(values, sources, frozenset(final))


def _in_order(
    project: Path, flags: Mapping[str, object], environ: Mapping[str, str], managed: Path
) -> Iterator[GivenSettings]:
    """Every source, the one that weighs least first."""
    directory = project_directory(project)
    yield from_file(home_directory() / SETTINGS_FILE)
    # Where the home directory itself is the project, both names mean the user's file.
    if directory.resolve() != home_directory().resolve():
        yield _from_project(attrs.evolve(from_file(directory / SETTINGS_FILE), is_of_project=True))
    yield _from_repository(attrs.evolve(from_file(directory / LOCAL_SETTINGS_FILE), is_of_project=True))
    yield from from_environment(environ)
    yield from_flags(flags)
    yield attrs.evolve(from_file(managed), is_final=True)


def _from_project(given: GivenSettings) -> GivenSettings:
    for key in PATHS:
        if key in given.values:
            reason = f"{key} may not be set by a project: it could point anywhere; set it in your own settings"
            raise ConfigInvalid(given.source, reason)
    if given.values.get("layers.dreaming.deletions") == "apply":
        reason = "layers.dreaming.deletions may not be apply in a project: what you remember is yours to delete"
        raise ConfigInvalid(given.source, reason)
    return _from_repository(given)


def _from_repository(given: GivenSettings) -> GivenSettings:
    # The local file is not committed by custom only: a repository can bring one along.
    if given.values.get("permissions.mode") == "bypassPermissions":
        reason = "permissions.mode may not be bypassPermissions in a project; give --permission-mode to a run instead"
        raise ConfigInvalid(given.source, reason)
    for key in HOOK_SWITCHES:
        if given.values.get(key) is False:
            reason = f"{key} may not be false in a project: your own hooks would not run; set it in your own settings"
            raise ConfigInvalid(given.source, reason)
    return given


def apply_definition(settings: Settings, project: Path) -> tuple[Settings, AgentDefinition | None]:
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


def _check_mode(kind: AgentDefinition) -> None:
    # A repository must not give itself the run of the machine it is checked out on.
    if kind.permission_mode == "bypassPermissions" and kind.scope in ("claude", "project"):
        reason = "a project's agent may not set bypassPermissions; give --permission-mode yourself"
        raise ConfigInvalid(str(kind.source), reason)

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
    """Remove from the project's settings *given* everything that loosens the sandbox of the user's *values*.

    Raises `ConfigInvalid` for a key that a project may not set at all.
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
"""Settings with paths of the user's files."""
HOOK_SWITCHES = ("hooks.enabled", "hooks.claude")
"""Settings with which a project could disable the user's hooks."""


def load_settings(
    project: Path, flags: Mapping[str, object], environ: Mapping[str, str], managed: Path = MANAGED_FILE
) -> Settings:
    """Load the settings of a run in the directory *project*, with the settings files of its project root.

    *flags* holds values by dotted key, None for a flag that is not given. Of *environ* the variables
    `COTERIE_LAYERS_...`, `COTERIE_MEMORY_...` and `COTERIE_PROGRESS_...` are read. A later source overrides an earlier
    one; lists are concatenated; a project can only tighten the sandbox. Raises `ConfigInvalid` with source and key for
    an unknown key, an invalid value, and a key that a project may not set.
    """
    values: dict[str, Any] = {}
    sources: dict[str, tuple[str, ...]] = {}
    final: set[str] = set()
    for given in _in_order(project, flags, environ, managed):
        if given.is_of_project:
            given = restrict_sandbox(given, values)  # noqa: PLW2901 - only the allowed values may be used below
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
    """Yield every source, lowest precedence first."""
    directory = project_directory(project)
    yield from_file(home_directory() / SETTINGS_FILE)
    # If the home directory itself is the project, both paths are the user's file.
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
    # The local file is not committed only by convention: a repository can contain one.
    if given.values.get("permissions.mode") == "bypassPermissions":
        reason = "permissions.mode may not be bypassPermissions in a project; give --permission-mode to a run instead"
        raise ConfigInvalid(given.source, reason)
    for key in HOOK_SWITCHES:
        if given.values.get(key) is False:
            reason = f"{key} may not be false in a project: your own hooks would not run; set it in your own settings"
            raise ConfigInvalid(given.source, reason)
    return given


def apply_definition(settings: Settings, project: Path) -> tuple[Settings, AgentDefinition | None]:
    """Apply the agent definition that *settings* names; return the new settings and the definition. Reads the disk.

    The command line and the managed file override a definition, and a definition overrides the other settings files.
    Raises `ConfigInvalid` for an unknown definition, and for one of a project that bypasses permissions.
    """
    if settings.agent is None:
        return settings, None
    definition = load_definitions(project).get(settings.agent)
    permissions = settings.permissions
    if definition.permission_mode is not None and not settings.is_final("permissions.mode"):
        # Cloning a repository must not give it unrestricted access to the machine.
        if definition.permission_mode == "bypassPermissions" and definition.scope in ("claude", "project"):
            reason = "a project's agent may not set bypassPermissions; pass --permission-mode yourself"
            raise ConfigInvalid(str(definition.source), reason)
        permissions = attrs.evolve(permissions, mode=definition.permission_mode)
    model = None if settings.is_final("model") else definition.model
    turns = None if settings.is_final("max_turns") else definition.max_turns
    effort = None if settings.is_final("effort") else definition.effort
    settings = attrs.evolve(
        settings,
        permissions=permissions,
        model=model or settings.model,
        max_turns=turns or settings.max_turns,
        effort=effort or settings.effort,
    )
    return settings, definition

"""Settings from all their places, laid over each other: whoever manages the machine has the last word."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.errors import ConfigInvalid
from coterie.agents.home import home
from coterie.agents.project import project_directory
from coterie.orchestrator.settings.confining import tightening
from coterie.orchestrator.settings.schema import Settings
from coterie.orchestrator.settings.sources import Given, from_environment, from_file, from_flags

FILE = "settings.toml"
LOCAL_FILE = "settings.local.toml"
MANAGED_FILE = Path("/etc/coterie") / FILE


PATHS = ("memory_directory", "memory.guidelines", "layers.notes.template", "layers.notes.prompt")
"""Settings that name files of the user's."""
SWITCHES = ("hooks.enabled", "hooks.claude")
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
            given = tightening(given, values)  # noqa: PLW2901 - what it may say is what it gives
        final.update(given.values if given.is_final else ())
        for key, value in given.values.items():
            if isinstance(value, tuple):
                added = tuple(item for item in dict.fromkeys(value) if item not in values.get(key, ()))
                values[key] = (*values.get(key, ()), *added)
                sources[key] = (*sources.get(key, ()), *(given.source for _ in added))
            else:
                values[key], sources[key] = value, (given.source,)
    return Settings.build(values, sources, frozenset(final))


def _in_order(project: Path, flags: Mapping[str, object], environ: Mapping[str, str], managed: Path) -> Iterator[Given]:
    """Every source, the one that weighs least first."""
    directory = project_directory(project)
    yield from_file(home() / FILE)
    # Where the home directory itself is the project, both names mean the user's file.
    if directory.resolve() != home().resolve():
        yield _of_the_project(attrs.evolve(from_file(directory / FILE), is_of_project=True))
    yield _of_the_repository(attrs.evolve(from_file(directory / LOCAL_FILE), is_of_project=True))
    yield from from_environment(environ)
    yield from_flags(flags)
    yield attrs.evolve(from_file(managed), is_final=True)


def _of_the_project(given: Given) -> Given:
    for key in PATHS:
        if key in given.values:
            reason = f"{key} may not be set by a project: it could point anywhere; set it in your own settings"
            raise ConfigInvalid(given.source, reason)
    if given.values.get("layers.dreaming.deletions") == "apply":
        reason = "layers.dreaming.deletions may not be apply in a project: what you remember is yours to delete"
        raise ConfigInvalid(given.source, reason)
    return _of_the_repository(given)


def _of_the_repository(given: Given) -> Given:
    # The local file is not committed by custom only: a repository can bring one along.
    if given.values.get("permissions.mode") == "bypassPermissions":
        reason = "permissions.mode may not be bypassPermissions in a project; give --permission-mode to a run instead"
        raise ConfigInvalid(given.source, reason)
    for key in SWITCHES:
        if given.values.get(key) is False:
            reason = f"{key} may not be false in a project: your own hooks would not run; set it in your own settings"
            raise ConfigInvalid(given.source, reason)
    return given

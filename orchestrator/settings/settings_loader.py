"""Loading of settings: values of files, environment variables, flags and the agent definition are merged."""

import contextlib
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import attrs

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.definitions.store import load_definitions
from coterie.agents.settings import (
    LOCAL_SETTINGS_FILE,
    MANAGED_FILE,
    SANDBOX_MODES,
    SECTIONS,
    SETTINGS,
    SETTINGS_FILE,
    SHORT,
    SandboxSettings,
    Settings,
    sections,
)
from coterie.errors import ConfigInvalid
from coterie.paths import home_directory, project_directory
from coterie.suggestions import closest_match


class InvalidValue(ValueError):
    """Error: a setting has an invalid value. The message names the key, the value and the expected type."""


def convert(key: str, value: object, kind: Any) -> Any:
    """Return *value* of *key*, from TOML or a flag, as *kind*, the type of a setting. Raises `InvalidValue`."""
    if get_origin(kind) is Literal:
        expected = f"one of {', '.join(get_args(kind))}"
        converted = value if value in get_args(kind) else None
    else:
        expected, convert_value = _KINDS[kind]
        converted = convert_value(value)
    if converted is None:
        raise InvalidValue(f"{key} is {format_value(value)}; it should be {expected}")
    return converted


def parse_text(text: str, kind: Any) -> object:
    """Return *text*, from an environment variable, as a bool or number if *kind* is such a type; else unchanged."""
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind is not str:
        with contextlib.suppress(ValueError):
            return int(text)
    if kind in (float, Decimal):
        with contextlib.suppress(ArithmeticError):
            return Decimal(text)
    return text


def format_value(value: object) -> str:
    """Return *value* as an error line shows it, such as `true`, `3`, `'text'`, "a table" or "a list"."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, str) else str(value)


def _whole_number(value: object) -> int | None:
    # bool is a subclass of int.
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _decimal(value: object) -> Decimal | None:
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        return None
    # Converted through str, so that the float 0.1 becomes Decimal("0.1").
    number = Decimal(str(value))
    return number if number.is_finite() and number > 0 else None


def _number(value: object) -> float | None:
    number = _decimal(value)
    return float(number) if number is not None and math.isfinite(float(number)) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _path(value: object) -> Path | None:
    if not isinstance(value, str | Path) or "\0" in str(value):
        return None
    path = Path(value).expanduser() if str(value).startswith("~/") else Path(value)
    return path if path.is_absolute() else None


def _all(value: object, convert_item: Callable[[object], Any]) -> tuple[Any, ...] | None:
    if not isinstance(value, list | tuple):
        return None
    items = tuple(item for each in value if (item := convert_item(each)) is not None)
    return items if len(items) == len(value) else None


_KINDS: Mapping[Any, tuple[str, Callable[[object], Any]]] = {
    bool: ("true or false", lambda value: value if isinstance(value, bool) else None),
    int: ("a whole number above 0", _whole_number),
    float: ("a number above 0", _number),
    Decimal: ("a number above 0", _decimal),
    str: ("a text in quotes", _text),
    Path: ("an absolute path in quotes, or one that begins with ~/", _path),
    tuple[str, ...]: ("a list of texts in quotes", partial(_all, convert_item=_text)),
    tuple[Path, ...]: (
        "a list of paths in quotes that are absolute or begin with ~/",
        partial(_all, convert_item=_path),
    ),
}
"""Type of a setting -> its description for error lines, and a function that converts a value, or returns None."""


COMMAND_LINE = "command line"
PREFIXES = ("COTERIE_LAYERS_", "COTERIE_MEMORY_", "COTERIE_PROGRESS_", "COTERIE_SKILLS_")
OTHERS = ("COTERIE_MEMORY_DIR",)
"""Environment variables that begin with one of `PREFIXES`, but are no settings."""
HOOKS = "hooks."
TABLES = ("layers.", "memory.", "progress.", "skills.")
VARIABLES = {"COTERIE_" + key.upper().replace(".", "_"): key for key in SETTINGS if key.startswith(TABLES)}
"""Environment variable -> key of its setting in one of `TABLES`: `COTERIE_MEMORY_ENABLED` -> `memory.enabled`."""


@attrs.frozen(kw_only=True)
class GivenSettings:
    """Settings from one source: one file, one environment variable, or all command-line flags."""

    source: str
    values: Mapping[str, Any]
    """Dotted key of a setting, such as `sandbox.mode` -> its converted value."""
    is_final: bool = False
    """True if an agent definition cannot override these values, as for flags and the managed file."""
    is_of_project: bool = False
    """True if the source is a settings file in the project, which may have come with a cloned repository."""


def from_file(path: Path) -> GivenSettings:
    """Read the settings file *path*; no values if it does not exist. Raises `ConfigInvalid` for an invalid file."""
    try:
        if not path.exists():
            return GivenSettings(source=str(path), values={})
        # Opening a pipe would block.
        if not path.is_file():
            raise ConfigInvalid(str(path), "the path is not a regular file; replace it by a TOML file or delete it")
        table = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except (OSError, ValueError, RecursionError) as exc:  # deeply nested brackets overflow the parser's stack
        raise ConfigInvalid(str(path), f"the file is not readable TOML: {exc}; correct it") from exc
    return GivenSettings(source=str(path), values=dict(_flat(table, Settings, "", str(path))))


def from_environment(environ: Mapping[str, str]) -> Iterator[GivenSettings]:
    """Yield the setting of each variable with one of `PREFIXES`; empty ones count as unset. Raises `ConfigInvalid`."""
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIXES) and name not in OTHERS and text:
            if name not in VARIABLES:
                raise ConfigInvalid(
                    name, f"the variable overrides no setting; {_suggest(name, {known: known for known in VARIABLES})}"
                )
            key = VARIABLES[name]
            value = parse_text(text, SETTINGS[key].kind)
            yield GivenSettings(source=name, values={key: _value(key, value, name)})


def from_flags(flags: Mapping[str, object]) -> GivenSettings:
    """Convert command-line flags, values by key such as `sandbox.mode`; None if not given. Raises `ConfigInvalid`."""
    values = {key: _value(key, value, COMMAND_LINE) for key, value in flags.items() if value is not None}
    return GivenSettings(source=COMMAND_LINE, is_final=True, values=values)


def _flat(table: Mapping[str, Any], section: type, prefix: str, source: str) -> Iterator[tuple[str, Any]]:
    tables = sections(section)
    for name, value in table.items():
        key = prefix + name
        if prefix == HOOKS and isinstance(value, list | dict):
            continue  # the hooks of an event, which agents/hooks reads
        if name not in tables:
            yield key, _value(key, value, source)
        elif key in SHORT and isinstance(value, str):
            yield SHORT[key], _value(SHORT[key], value, source)
        elif isinstance(value, dict):
            yield from _flat(value, tables[name], f"{key}.", source)
        else:
            raise ConfigInvalid(source, f"{key} is {format_value(value)}; it should be a table, begun by [{key}]")


def _value(key: str, value: object, source: str) -> Any:
    if key not in SETTINGS:
        raise ConfigInvalid(source, f"there is no setting {key!r}; {_hint(key)}")
    try:
        return convert(key, value, SETTINGS[key].kind)
    except InvalidValue as exc:
        raise ConfigInvalid(source, str(exc)) from exc


def _hint(key: str) -> str:
    section, _, name = key.rpartition(".")
    # A correct name in a wrong table is a likely mistake, but its text distance is large.
    if namesakes := [known for known in SETTINGS if known.rpartition(".")[2] == name]:
        return f"did you mean {' or '.join(namesakes)}?"
    siblings = [known for known in (*SETTINGS, *SECTIONS) if known.rpartition(".")[0] == section]
    # Compared without the table name: a shared prefix would make all names similar.
    return _suggest(name, {known.rpartition(".")[2]: known for known in siblings})


def _suggest(name: str, known: Mapping[str, str]) -> str:
    near = closest_match(name, known, 1)
    return f"did you mean {known[near[0]]}?" if near else f"known: {', '.join(sorted(known.values())) or 'none'}"


FORBIDDEN_TO_PROJECTS = {
    "sandbox.write": "commands could then change your files",
    "sandbox.auto_allow": "commands would run without asking you",
    "web.hosts": "agents could send your files to these hosts",
}


def restrict_sandbox(given: GivenSettings, values: Mapping[str, Any]) -> GivenSettings:
    """Return the project's settings *given* without values that would loosen the sandbox of earlier settings, *values*.

    Raises `ConfigInvalid` for a key in `FORBIDDEN_TO_PROJECTS`.
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
"""Keys of settings with a path; a project's shared settings file may not set them, as they could name any file."""
HOOK_SWITCHES = ("hooks.enabled", "hooks.claude")
"""Keys of settings that a project may not set to false, because that would switch off hooks of the user."""


def load_settings(
    project: Path, flags: Mapping[str, object], environ: Mapping[str, str], managed: Path = MANAGED_FILE
) -> Settings:
    """Load the settings for work in the directory *project*, merged from all settings files, variables and flags.

    *flags* has values by dotted key, such as `sandbox.mode`; None if a flag is not given. Of *environ* the variables
    with one of `PREFIXES` are read. A later source overrides an earlier one; lists are concatenated; a project can only
    tighten the sandbox. Raises `ConfigInvalid` with source and key for an unknown key, an invalid value, and a key that
    a project may not set.
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
    """Yield the settings of each source: user file, project files, variables, flags, managed file. Later ones win."""
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
            reason = f"{key} may not be set by a project: it could name any file; set it in your own settings"
            raise ConfigInvalid(given.source, reason)
    if given.values.get("layers.dreaming.deletions") == "apply":
        reason = "layers.dreaming.deletions may not be apply in a project; set it in your own settings"
        raise ConfigInvalid(given.source, reason)
    return _from_repository(given)


def _from_repository(given: GivenSettings) -> GivenSettings:
    # The local file is not committed only by convention: a repository can contain one.
    if given.values.get("permissions.mode") == "bypassPermissions":
        reason = "permissions.mode may not be bypassPermissions in a project; pass --permission-mode to a run instead"
        raise ConfigInvalid(given.source, reason)
    for key in HOOK_SWITCHES:
        if given.values.get(key) is False:
            reason = f"{key} may not be false in a project: your own hooks would not run; set it in your own settings"
            raise ConfigInvalid(given.source, reason)
    return given


def apply_definition(settings: Settings, project: Path) -> tuple[Settings, AgentDefinition | None]:
    """Return *settings* with the values of the agent definition that they name, and the definition; None without one.

    Flags and the managed file override a definition, and a definition overrides all other sources. Reads the disk.
    Raises `ConfigInvalid` for an unknown definition, and for a definition of a project that bypasses permissions.
    """
    if settings.agent is None:
        return settings, None
    definition = load_definitions(project).get(settings.agent)
    permissions = settings.permissions
    if definition.permission_mode is not None and not settings.is_final("permissions.mode"):
        # Cloning a repository must not give it unrestricted access to the machine.
        if definition.permission_mode == "bypassPermissions" and definition.scope in ("claude", "project"):
            reason = "an agent of a project may not set bypassPermissions; pass --permission-mode to a run instead"
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

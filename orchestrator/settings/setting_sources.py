"""Sources of settings: files, the environment and the command line."""

import tomllib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.settings import SECTIONS, SETTINGS, SHORT, Settings, sections
from coterie.errors import ConfigInvalid
from coterie.orchestrator.settings.setting_values import InvalidValue, convert, format_value, parse_text
from coterie.suggestions import closest_match

COMMAND_LINE = "command line"
PREFIXES = ("COTERIE_LAYERS_", "COTERIE_MEMORY_", "COTERIE_PROGRESS_", "COTERIE_SKILLS_")
OTHERS = ("COTERIE_MEMORY_DIR",)
"""Variables with such a prefix that are no setting."""
HOOKS = "hooks."
TABLES = ("layers.", "memory.", "progress.", "skills.")
VARIABLES = {"COTERIE_" + key.upper().replace(".", "_"): key for key in SETTINGS if key.startswith(TABLES)}
"""Environment variable -> the setting it overrides: the numbers and switches of these tables."""


@attrs.frozen(kw_only=True)
class GivenSettings:
    """What one source gives."""

    source: str
    values: Mapping[str, Any]
    """Dotted keys, values of the right type."""
    is_final: bool = False
    """Whether an agent's definition has no say any more."""
    is_of_project: bool = False
    """Whether a repository may have brought it along."""


def from_file(path: Path) -> GivenSettings:
    """The settings in a TOML file; none if there is no file. Raises `ConfigInvalid` for what cannot be used."""
    try:
        if not path.exists():
            return GivenSettings(source=str(path), values={})
        # Opening a pipe would wait for its other end.
        if not path.is_file():
            raise ConfigInvalid(str(path), "is not a file; settings are read from a TOML file or from none")
        table = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except (OSError, ValueError, RecursionError) as exc:  # a deep nest of brackets ends the parser's stack
        raise ConfigInvalid(str(path), f"not a readable TOML file: {exc}") from exc
    return GivenSettings(source=str(path), values=dict(_flat(table, Settings, "", str(path))))


def from_environment(environ: Mapping[str, str]) -> Iterator[GivenSettings]:
    """Each variable that overrides a setting; an empty one counts as not set. Raises `ConfigInvalid`."""
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIXES) and name not in OTHERS and text:
            if name not in VARIABLES:
                raise ConfigInvalid(
                    name, f"overrides no setting; {_suggest(name, {known: known for known in VARIABLES})}"
                )
            key = VARIABLES[name]
            value = parse_text(text, SETTINGS[key].kind)
            yield GivenSettings(source=name, values={key: _value(key, value, name)})


def from_flags(flags: Mapping[str, object]) -> GivenSettings:
    """Values by dotted key; None stands for a flag that was not given. Raises `ConfigInvalid`."""
    values = {key: _value(key, value, COMMAND_LINE) for key, value in flags.items() if value is not None}
    return GivenSettings(source=COMMAND_LINE, is_final=True, values=values)


def _flat(table: Mapping[str, Any], section: type, prefix: str, source: str) -> Iterator[tuple[str, Any]]:
    tables = sections(section)
    for name, value in table.items():
        key = prefix + name
        if prefix == HOOKS and isinstance(value, list | dict):
            continue  # what is to run at an event: whoever runs it reads it
        if name not in tables:
            yield key, _value(key, value, source)
        elif key in SHORT and isinstance(value, str):
            yield SHORT[key], _value(SHORT[key], value, source)
        elif isinstance(value, dict):
            yield from _flat(value, tables[name], f"{key}.", source)
        else:
            raise ConfigInvalid(source, f"{key} is {format_value(value)}; it should be a table, [{key}]")


def _value(key: str, value: object, source: str) -> Any:
    if key not in SETTINGS:
        raise ConfigInvalid(source, f"there is no setting {key!r}; {_hint(key)}")
    try:
        return convert(value, SETTINGS[key].kind)
    except InvalidValue as exc:
        raise ConfigInvalid(source, f"{key} {exc}") from exc


def _hint(key: str) -> str:
    section, _, name = key.rpartition(".")
    # A right name in a wrong table is a likely mistake, and far off as text.
    if namesakes := [known for known in SETTINGS if known.rpartition(".")[2] == name]:
        return f"did you mean {' or '.join(namesakes)}?"
    beside = [known for known in (*SETTINGS, *SECTIONS) if known.rpartition(".")[0] == section]
    # Compared without their table: what they share would make all names alike.
    return _suggest(name, {known.rpartition(".")[2]: known for known in beside})


def _suggest(name: str, known: Mapping[str, str]) -> str:
    near = closest_match(name, known, 1)
    return f"did you mean {known[near[0]]}?" if near else f"there is {', '.join(sorted(known.values())) or 'none'}"

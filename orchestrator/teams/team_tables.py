"""Reader of the tables of a team file, and the problems it finds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from coterie.errors import ConfigInvalid
from coterie.orchestrator.settings.setting_values import InvalidValue, convert, format_value
from coterie.source_positions import TomlKeyPath, TomlPositions
from coterie.suggestions import did_you_mean


@attrs.frozen(kw_only=True)
class TeamFileProblem:
    """One thing that must be mended."""

    path: Path
    line: int
    reason: str
    """What is wrong and what would be right, in one line."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@attrs.define(eq=False)
class TeamInvalid(ConfigInvalid):
    """The file of a team cannot be used."""

    flaws: tuple[TeamFileProblem, ...] = ()
    """All that is wrong with it, in the order of its lines."""

    @classmethod
    def of(cls, *flaws: TeamFileProblem) -> "TeamInvalid":
        """The error for *flaws* of one file."""
        ordered = tuple(sorted(flaws, key=lambda flaw: flaw.line))
        return cls(str(ordered[0].path), ordered[0].reason, ordered)

    def __str__(self) -> str:
        return "\n".join(map(str, self.flaws))


KeyTypes = Mapping[str, Any]
"""The keys of a table, and the type of each, as settings have them; None where somebody else reads it."""


@attrs.define(eq=False)
class TeamTableReader:
    """What was found wrong with one file so far."""

    path: Path
    _lines: TomlPositions
    flaws: list[TeamFileProblem] = attrs.field(factory=list, init=False)

    def add_problem(self, place: TomlKeyPath, reason: str) -> None:
        """Note that the value at *place* is wrong."""
        self.flaws.append(TeamFileProblem(path=self.path, line=self._lines.line_of(*place), reason=reason))

    def fields(self, place: TomlKeyPath, table: object, kinds: KeyTypes) -> dict[str, Any]:
        """What the *table* at *place* gives for the keys of *kinds*; what cannot be used is left out, and noted."""
        if not isinstance(table, dict):
            self.add_problem(place, f"{_named(place)} is {format_value(table)}; it should be a table")
            return {}
        for key in (key for key in table if key not in kinds):
            self.add_problem((*place, key), f"there is no key {key!r} here; {did_you_mean(key, kinds)}")
        read = {key: self._value((*place, key), table[key], kind) for key, kind in kinds.items() if key in table}
        return {key: value for key, value in read.items() if value is not None}

    def tables(self, key: str, value: object) -> list[object]:
        """The tables that stand in the list *value*, which is that of *key*."""
        if isinstance(value, list):
            return value
        self.add_problem(
            (key,), f"{key} is {format_value(value)}; it should be a list of tables, each below a line [[{key}]]"
        )
        return []

    def require(self, place: TomlKeyPath, table: Mapping[str, Any], given: object, example: str, key: str) -> None:
        """Note that *table*, read from *given*, has no *key*, unless what it has was noted."""
        if key not in table and isinstance(given, dict) and key not in given:
            self.add_problem(place, f"there is no {key}: add a line such as `{key} = {example}`")

    def _value(self, place: TomlKeyPath, value: object, kind: Any) -> Any:
        if kind is None:
            return value
        try:
            return convert(value, kind)
        except InvalidValue as exc:
            self.add_problem(place, f"{place[-1]} {exc}")
            return None


def _named(place: TomlKeyPath) -> str:
    return ".".join(str(part) for part in place)

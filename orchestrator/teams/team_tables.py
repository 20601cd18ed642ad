"""Reader of the tables of a team file, and the problems it finds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from coterie.errors import ConfigInvalid
from coterie.orchestrator.settings.setting_sources import InvalidValue, convert, format_value
from coterie.source_positions import TomlKeyPath, TomlPositions
from coterie.suggestions import did_you_mean


@attrs.frozen(kw_only=True)
class TeamFileProblem:
    """One problem in a team file: path, line and reason."""

    path: Path
    line: int
    reason: str
    """One line: the problem and the expected form."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@attrs.define(eq=False)
class TeamInvalid(ConfigInvalid):
    """A team file cannot be used; carries all problems of the file."""

    flaws: tuple[TeamFileProblem, ...] = ()
    """All problems of the team file, in line order."""

    @classmethod
    def of(cls, *flaws: TeamFileProblem) -> "TeamInvalid":
        """Return the error for the problems *flaws* of one team file."""
        ordered = tuple(sorted(flaws, key=lambda flaw: flaw.line))
        return cls(str(ordered[0].path), ordered[0].reason, ordered)

    def __str__(self) -> str:
        return "\n".join(map(str, self.flaws))


KeyTypes = Mapping[str, Any]
"""The keys of a table, and the type of each; None if another function checks the value."""


@attrs.define(eq=False)
class TeamTableReader:
    """Reads tables of one team file, and collects their problems."""

    path: Path
    _lines: TomlPositions
    flaws: list[TeamFileProblem] = attrs.field(factory=list, init=False)

    def add_problem(self, place: TomlKeyPath, reason: str) -> None:
        """Add a problem of the value at *place*."""
        self.flaws.append(TeamFileProblem(path=self.path, line=self._lines.line_of(*place), reason=reason))

    def fields(self, place: TomlKeyPath, table: object, types: KeyTypes) -> dict[str, Any]:
        """Return the valid values of the *table* at *place* for the keys of *types*; other values become problems."""
        if not isinstance(table, dict):
            name = ".".join(map(str, place))
            self.add_problem(place, f"{name} is {format_value(table)}; it should be a table")
            return {}
        for key in (key for key in table if key not in types):
            self.add_problem((*place, key), f"unknown key {key!r}; {did_you_mean(key, types)}")
        read = {key: self._value((*place, key), table[key], type_) for key, type_ in types.items() if key in table}
        return {key: value for key, value in read.items() if value is not None}

    def tables(self, key: str, value: object) -> list[object]:
        """Return the tables in the list *value* of the key *key*; another value becomes a problem."""
        if isinstance(value, list):
            return value
        self.add_problem(
            (key,), f"{key} is {format_value(value)}; it should be a list of tables, each after a line [[{key}]]"
        )
        return []

    def require(self, place: TomlKeyPath, table: Mapping[str, Any], given: object, example: str, key: str) -> None:
        """Add a problem if *table*, read from *given*, has no *key*, unless its value already was a problem."""
        if key not in table and isinstance(given, dict) and key not in given:
            self.add_problem(place, f"{key} is missing: add a line such as `{key} = {example}`")

    def _value(self, place: TomlKeyPath, value: object, type_: Any) -> Any:
        if type_ is None:
            return value
        try:
            return convert(value, type_)
        except InvalidValue as exc:
            self.add_problem(place, f"{place[-1]} {exc}")
            return None

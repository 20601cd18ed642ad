"""A table of a team's file, read by its keys: every flaw is noted with its line, and the reading goes on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.nearest import suggestion
from coterie.orchestrator.settings.values import Unfit, convert, shown
from coterie.orchestrator.teams.flaws import Flaw
from coterie.orchestrator.teams.toml_lines import Place, TomlLines

Kinds = Mapping[str, Any]
"""The keys of a table, and the type of each, as settings have them; None where somebody else reads it."""


@attrs.define(eq=False)
class Notes:
    """What was found wrong with one file so far."""

    path: Path
    _lines: TomlLines
    flaws: list[Flaw] = attrs.field(factory=list, init=False)

    def tell(self, place: Place, reason: str) -> None:
        """Note that the value at *place* is wrong."""
        self.flaws.append(Flaw(path=self.path, line=self._lines.of_place(*place), reason=reason))

    def fields(self, place: Place, table: object, kinds: Kinds) -> dict[str, Any]:
        """What the *table* at *place* gives for the keys of *kinds*; what cannot be used is left out, and noted."""
        if not isinstance(table, dict):
            self.tell(place, f"{_named(place)} is {shown(table)}; it should be a table")
            return {}
        for key in (key for key in table if key not in kinds):
            self.tell((*place, key), f"there is no key {key!r} here; {suggestion(key, kinds)}")
        read = {key: self._value((*place, key), table[key], kind) for key, kind in kinds.items() if key in table}
        return {key: value for key, value in read.items() if value is not None}

    def tables(self, key: str, value: object) -> list[object]:
        """The tables that stand in the list *value*, which is that of *key*."""
        if isinstance(value, list):
            return value
        self.tell((key,), f"{key} is {shown(value)}; it should be a list of tables, each below a line [[{key}]]")
        return []

    def require(self, place: Place, table: Mapping[str, Any], given: object, example: str, key: str) -> None:
        """Note that *table*, read from *given*, has no *key*, unless what it has was noted."""
        if key not in table and isinstance(given, dict) and key not in given:
            self.tell(place, f"there is no {key}: add a line such as `{key} = {example}`")

    def _value(self, place: Place, value: object, kind: Any) -> Any:
        if kind is None:
            return value
        try:
            return convert(value, kind)
        except Unfit as exc:
            self.tell(place, f"{place[-1]} {exc}")
            return None


def _named(place: Place) -> str:
    return ".".join(str(part) for part in place)

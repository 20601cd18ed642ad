"""Line numbers of the values in TOML and JSON files."""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

TomlKeyPath = tuple[str | int, ...]
"""The keys and the places in lists that lead to a value from the top."""

# A string may hold whatever else is looked for here. Two quotes more may stand before the three that end a long one.
_TOML_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|[\[\]{}\n]",
    re.DOTALL,
)
_DEEPER = {"[": 1, "{": 1, "]": -1, "}": -1}


@attrs.frozen
class TomlPositions:
    """Lines of values, counted from 1; what stands inside a value stands where that begins."""

    _by_place: Mapping[TomlKeyPath, int]

    @classmethod
    def parse(cls, text: str) -> "TomlPositions":
        """Those of *text*, which is TOML."""
        return cls(dict(_toml_places(text.replace("\r\n", "\n"))))

    def line_of(self, *place: str | int) -> int:
        """The line of the value at *place*, or of what it would stand in."""
        while place and place not in self._by_place:
            place = place[:-1]
        return self._by_place.get(place, 1)


def _toml_places(text: str) -> Iterator[tuple[TomlKeyPath, int]]:
    table: TomlKeyPath = ()
    tables: Counter[TomlKeyPath] = Counter()
    for line, statement in _statements(text):
        # Each statement is TOML by itself, so that keys and headers are read by the parser.
        read = tomllib.loads(statement)
        if statement.lstrip().startswith("["):
            table = _table(read, tables)
            yield table, line
        else:
            yield from ((table + place, line) for place in _below(read))


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Headers and pairs, each with the line that it begins on; blank lines and comments come along."""
    begin, depth = 0, 0
    line = beginning = 1
    for token in _TOML_TOKEN.finditer(text):
        depth += _DEEPER.get(token[0], 0)
        line += token[0].count("\n")
        if token[0] == "\n" and depth == 0:
            yield beginning, text[begin : token.start()]
            begin, beginning = token.end(), line
    yield beginning, text[begin:]


def _table(header: Mapping[str, Any], tables: Counter[TomlKeyPath]) -> TomlKeyPath:
    """The table that *header* begins; of those in lists, *tables* has how many there are."""
    place: TomlKeyPath = ()
    value: Any = header
    while value:
        [(key, value)] = value.items()
        place += (key,)
        if value == [{}]:
            tables[place] += 1
        if tables[place]:
            place += (tables[place] - 1,)
        if isinstance(value, list):
            break
    return place


def _below(value: object) -> Iterator[TomlKeyPath]:
    pairs: Iterator[tuple[str | int, object]] = iter(())
    if isinstance(value, dict):
        pairs = iter(value.items())
    elif isinstance(value, list):
        pairs = iter(enumerate(value))
    for key, below in pairs:
        yield (key,)
        yield from ((key, *place) for place in _below(below))


JsonKeyPath = tuple[str | int, ...]
"""The keys and the places in lists that lead to a value."""

# A string may hold whatever else is looked for here.
_JSON_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[\[\]{},:\n]')


@attrs.frozen
class JsonPositions:
    """Lines of values, counted from 1; what stands inside a list without a table stands where that begins."""

    _by_place: Mapping[JsonKeyPath, int]

    @classmethod
    def parse(cls, text: str) -> "JsonPositions":
        """Those of *text*, which is JSON."""
        return cls(dict(_json_places(text)))

    def line_of(self, *place: str | int) -> int:
        """The line of the value at *place*, or of what it would stand in."""
        while place and place not in self._by_place:
            place = place[:-1]
        return self._by_place.get(place, 1)


def _json_places(text: str) -> Iterator[tuple[JsonKeyPath, int]]:
    line, steps = 1, list[str | int]()
    """Of each table or list that is open: the key or the place in it that is being read."""
    is_key = False
    for sign in _JSON_TOKEN.findall(text):
        if sign == "\n":
            line += 1
        elif sign in "{[":
            yield tuple(steps), line
            steps.append("" if sign == "{" else 0)
            is_key = sign == "{"
        elif sign in "}]":
            steps.pop()
            is_key = False
        elif sign == ",":
            last = steps[-1]
            is_key = isinstance(last, str)
            steps[-1] = last + 1 if isinstance(last, int) else last
        elif sign != ":" and is_key:
            steps[-1], is_key = json.loads(sign), False
            yield tuple(steps), line

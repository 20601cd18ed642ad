"""Line numbers of the values in TOML and JSON files, for error messages about these values."""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

KeyPath = tuple[str | int, ...]
"""Keys and list indexes that lead from the top of a document to a value."""
TomlKeyPath = KeyPath
JsonKeyPath = KeyPath

# Strings are matched first, because they may contain brackets and newlines. A multi-line string may end with up to two
# quotes before its three closing ones.
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
class SourcePositions:
    """Line numbers of the values of one document, counted from 1."""

    _by_path: Mapping[KeyPath, int]

    def line_of(self, *path: str | int) -> int:
        """Return the line of the value at *path*, its keys and indexes; if unknown, the line of the closest parent."""
        while path and path not in self._by_path:
            path = path[:-1]
        return self._by_path.get(path, 1)


@attrs.frozen
class TomlPositions(SourcePositions):
    """Line numbers of the values of a TOML document; a value inside a list or inline table has the line of its key."""

    @classmethod
    def parse(cls, text: str) -> "TomlPositions":
        """Find the lines of the values in *text*, which must be valid TOML."""
        return cls(dict(_toml_places(text.replace("\r\n", "\n"))))


def _toml_places(text: str) -> Iterator[tuple[KeyPath, int]]:
    table: KeyPath = ()
    tables: Counter[KeyPath] = Counter()
    for line, statement in _statements(text):
        # Each statement is a valid TOML document, so the parser can read its keys and headers.
        parsed = tomllib.loads(statement)
        if statement.lstrip().startswith("["):
            table = _table(parsed, tables)
            yield table, line
        else:
            yield from ((table + path, line) for path in _paths_below(parsed))


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the first line number and the text of each TOML table header, key-value pair, blank line and comment."""
    begin, depth = 0, 0
    line = beginning = 1
    for token in _TOML_TOKEN.finditer(text):
        depth += _DEEPER.get(token[0], 0)
        line += token[0].count("\n")
        if token[0] == "\n" and depth == 0:
            yield beginning, text[begin : token.start()]
            begin, beginning = token.end(), line
    yield beginning, text[begin:]


def _table(header: Mapping[str, Any], tables: Counter[KeyPath]) -> KeyPath:
    """Return the path of the table that *header* starts.

    *tables* counts the tables of each array of tables so far; the path contains the index of the table in its array.
    """
    path: KeyPath = ()
    value: Any = header
    while value:
        [(key, value)] = value.items()
        path += (key,)
        if value == [{}]:
            tables[path] += 1
        if tables[path]:
            path += (tables[path] - 1,)
        if isinstance(value, list):
            break
    return path


def _paths_below(value: object) -> Iterator[KeyPath]:
    pairs: Iterator[tuple[str | int, object]] = iter(())
    if isinstance(value, dict):
        pairs = iter(value.items())
    elif isinstance(value, list):
        pairs = iter(enumerate(value))
    for key, below in pairs:
        yield (key,)
        yield from ((key, *path) for path in _paths_below(below))


# Strings are matched first, because they may contain brackets and newlines.
_JSON_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[\[\]{},:\n]')


@attrs.frozen
class JsonPositions(SourcePositions):
    """Line numbers of the values of a JSON document; a string or number in a list has the line of the list."""

    @classmethod
    def parse(cls, text: str) -> "JsonPositions":
        """Find the lines of the values in *text*, which must be valid JSON."""
        return cls(dict(_json_places(text)))


def _json_places(text: str) -> Iterator[tuple[KeyPath, int]]:
    line, steps = 1, list[str | int]()
    """*steps* is the path of the current value: the current key or index of each open object or list."""
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

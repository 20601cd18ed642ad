"""Errors of a scenario file, collected with their lines and raised together."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import attrs

from coterie.scenarios.api_server.script.located_yaml import LineInvalid, YamlNode, known_names_hint

Value = TypeVar("Value")


@attrs.define(eq=False)
class ScenarioInvalid(Exception):
    """An invalid scenario file; the user must change it."""

    source: Path
    errors: tuple[LineInvalid, ...]
    """Errors by line."""

    def __str__(self) -> str:
        return "\n".join(f"{self.source}, line {error.line}: {error.reason}" for error in self.errors)


@attrs.define(eq=False)
class ParseErrors:
    """Errors found so far in one file."""

    found: list[LineInvalid] = attrs.field(factory=list)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect a `LineInvalid` raised in the block and continue after the block."""
        try:
            yield
        except LineInvalid as exc:
            self.found.append(exc)

    def add(self, line: int, reason: str) -> None:
        """Add an error on *line*."""
        self.found.append(LineInvalid(line, reason))

    def fields(self, node: YamlNode | None, known: Iterable[str], expected: str) -> dict[str, YamlNode]:
        """Return the values of *known* keys in a mapping; every other key, or another type, is an error."""
        names = sorted(known)
        with self.collecting():
            fields = {} if node is None else node.fields(expected)
            for key in fields:
                if key not in names:
                    assert node is not None
                    self.add(
                        node.key_lines[key], f"{node.name} has an unknown key {key!r}; {known_names_hint(key, names)}"
                    )
            return {key: value for key, value in fields.items() if key in names}
        return {}

    def parse_items(self, node: YamlNode | None, expected: str, parse: Callable[[YamlNode], Value]) -> list[Value]:
        """Parse each item of a list; an invalid item is collected and skipped."""
        parsed: list[Value] = []
        with self.collecting():
            for item in () if node is None else node.items(expected):
                with self.collecting():
                    parsed.append(parse(item))
        return parsed

    def attempt(self, parse: Callable[[YamlNode], Value], node: YamlNode | None, default: Value) -> Value:
        """Return the result of *parse* on *node*; *default* if *node* is None or invalid."""
        with self.collecting():
            return default if node is None else parse(node)
        return default

    def check(self, source: Path) -> None:
        """Raise `ScenarioInvalid` if there are errors."""
        if self.found:
            raise ScenarioInvalid(source, tuple(sorted(self.found, key=lambda error: error.line)))

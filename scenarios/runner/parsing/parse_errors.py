"""Collects the errors of a scenario file with their lines, to raise them all in one exception."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import attrs

from coterie.scenarios.api_server.script.located_yaml import LineInvalid, YamlNode, known_names_hint

Value = TypeVar("Value")


@attrs.define(eq=False)
class ScenarioInvalid(Exception):
    """A scenario file is invalid; the user must correct it. The text has one line for each error."""

    source: Path
    errors: tuple[LineInvalid, ...]
    """All errors in the file, sorted by line."""

    def __str__(self) -> str:
        return "\n".join(f"{self.source}, line {error.line}: {error.reason}" for error in self.errors)


@attrs.define(eq=False)
class ParseErrors:
    """Errors found so far in one scenario file, so that parsing can continue after an error."""

    found: list[LineInvalid] = attrs.field(factory=list)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Add a `LineInvalid` raised in the block to `found`, and continue after the block instead of raising it."""
        try:
            yield
        except LineInvalid as exc:
            self.found.append(exc)

    def add(self, line: int, reason: str) -> None:
        """Add an error with the text *reason* for *line* of the file."""
        self.found.append(LineInvalid(line, reason))

    def fields(self, node: YamlNode | None, known: Iterable[str], expected: str) -> dict[str, YamlNode]:
        """Return the values of *known* keys in the mapping *node*; add an error for an unknown key or a non-mapping."""
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
        """Return the result of *parse* for each item of the list *node*; invalid items are skipped and add errors."""
        parsed: list[Value] = []
        with self.collecting():
            for item in () if node is None else node.items(expected):
                with self.collecting():
                    parsed.append(parse(item))
        return parsed

    def attempt(self, parse: Callable[[YamlNode], Value], node: YamlNode | None, default: Value) -> Value:
        """Return the result of *parse* on *node*; *default* if *node* is None, or is invalid, which adds an error."""
        with self.collecting():
            return default if node is None else parse(node)
        return default

    def check(self, source: Path) -> None:
        """Raise `ScenarioInvalid` with all errors found so far in the file *source*; return if there are none."""
        if self.found:
            raise ScenarioInvalid(source, tuple(sorted(self.found, key=lambda error: error.line)))

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
    """A scenario file cannot be used; the user must change it."""

    source: Path
    errors: tuple[LineInvalid, ...]
    """In the order of their lines."""

    def __str__(self) -> str:
        return "\n".join(f"{self.source}, line {error.line}: {error.reason}" for error in self.errors)


@attrs.define(eq=False)
class ParseErrors:
    """What was found so far."""

    found: list[LineInvalid] = attrs.field(factory=list)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Take note of a error that is raised in the block, and go on behind it."""
        try:
            yield
        except LineInvalid as exc:
            self.found.append(exc)

    def add(self, line: int, reason: str) -> None:
        """Take note of what is wrong on *line*."""
        self.found.append(LineInvalid(line, reason))

    def fields(self, node: YamlNode | None, known: Iterable[str], wanted: str) -> dict[str, YamlNode]:
        """The values of a mapping whose keys are *known*; each other key is a error. Nothing if it is no mapping."""
        words = sorted(known)
        with self.collecting():
            fields = {} if node is None else node.fields(wanted)
            for key in fields:
                if key not in words:
                    assert node is not None
                    self.add(
                        node.key_lines[key], f"{node.name} has an unknown key {key!r}; {known_names_hint(key, words)}"
                    )
            return {key: value for key, value in fields.items() if key in words}
        return {}

    def items(self, node: YamlNode | None, wanted: str) -> tuple[YamlNode, ...]:
        """The items of a list; nothing if it is none."""
        with self.collecting():
            return () if node is None else node.items(wanted)
        return ()

    def attempt(self, read: Callable[[YamlNode], Value], node: YamlNode | None, default: Value) -> Value:
        """What *read* makes of *node*; the *default* if there is no node, or a error in it."""
        with self.collecting():
            return default if node is None else read(node)
        return default

    def check(self, source: Path) -> None:
        """Raise `ScenarioInvalid` if anything was found."""
        if self.found:
            raise ScenarioInvalid(source, tuple(sorted(self.found, key=lambda error: error.line)))

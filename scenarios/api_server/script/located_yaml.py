"""YAML parser that stores the line number of each value, for error messages.

Plain scalars follow the core schema of YAML 1.2 (`no` and `12:30` are text). The tree is built from parser events,
because composing nodes recurses in C and a deeply nested file would crash the process.
"""

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
import yaml

DEPTH_LIMIT = 64
NODE_LIMIT = 200_000
"""Maximum number of values in a file, with aliases expanded."""

_NULL = re.compile(r"|~|null|Null|NULL")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_TEXT_TAGS = ("!", "tag:yaml.org,2002:str")

Scalar = None | bool | int | float | str


@attrs.define(eq=False)
class LineInvalid(Exception):
    """An invalid value on *line* of a YAML file; a caller that knows the file name adds it."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@attrs.frozen(kw_only=True)
class YamlNode:
    """One value of a YAML file. Its methods return the value in the requested type or raise `LineInvalid`."""

    name: str
    """Key of the value in its mapping; an item of a list also has its number, from 1: `tools[2]`."""
    line: int
    value: "Scalar | tuple[YamlNode, ...] | dict[str, YamlNode]"
    spelling: str = ""
    """Text of a scalar, before conversion to a number, boolean or null, without quotes; empty for a list or mapping."""
    key_lines: Mapping[str, int] = attrs.field(factory=dict)

    def refuse(self, reason: str) -> LineInvalid:
        """Return an error with the line of this value and this *reason*, for the caller to raise."""
        return LineInvalid(self.line, reason)

    def refuse_as(self, expected: str) -> LineInvalid:
        """Return an error that the value must be *expected*, for example "a list", for the caller to raise."""
        return self.refuse(f"{self.name} must be {expected}, not {self._described()}")

    def is_scalar(self) -> bool:
        """True if the value is a string, number or boolean."""
        return self.value is not None and not isinstance(self.value, tuple | dict)

    def text(self, expected: str = "text") -> str:
        """Return a scalar as written, so that `42` is text too. Raises `LineInvalid` for other values, or if empty."""
        if not self.is_scalar() or not self.spelling:
            raise self.refuse_as(expected)
        return self.spelling

    def seconds(self) -> float:
        """Return the value as a number of seconds. Raises `LineInvalid` if it is negative or not a number."""
        if not isinstance(self.value, int | float) or isinstance(self.value, bool) or self.value < 0:
            raise self.refuse_as("a number of seconds")
        return float(self.value)

    def count(self, expected: str = "a whole number from 1") -> int:
        """Return the value as a whole number of at least 1. Raises `LineInvalid` for any other value."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < 1:
            raise self.refuse_as(expected)
        return self.value

    def times(self) -> int | None:
        """Return the value as a whole number of at least 1, or None if it is the word `always`."""
        return None if self.value == "always" else self.count("a whole number from 1, or always")

    def items(self, expected: str = "a list") -> "tuple[YamlNode, ...]":
        """Return the items of the value. Raises `LineInvalid` if it is not a list, or is empty."""
        if not isinstance(self.value, tuple):
            raise self.refuse_as(expected)
        if not self.value:
            raise self.refuse(f"{self.name} is an empty list; expected {expected}")
        return self.value

    def fields(self, expected: str = "a mapping") -> "dict[str, YamlNode]":
        """Return the values of the mapping by key. Raises `LineInvalid` if the value is not a mapping, or is empty."""
        if not isinstance(self.value, dict):
            raise self.refuse_as(expected)
        if not self.value:
            raise self.refuse(f"{self.name} is an empty mapping; expected {expected}")
        return self.value

    def known_fields(self, known: Iterable[str], expected: str = "a mapping") -> "dict[str, YamlNode]":
        """Return the values of a mapping by key. Raises `LineInvalid`, with a hint, for a key that is not *known*."""
        fields, known = self.fields(expected), sorted(known)
        for key in fields:
            if key not in known:
                hint = known_names_hint(key, known)
                raise LineInvalid(self.key_lines[key], f"{self.name} has an unknown key {key!r}; {hint}")
        return fields

    def plain(self) -> Any:
        """Return the value as JSON data, without line numbers."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, tuple):
            return [node.plain() for node in self.value]
        return self.value

    def _described(self) -> str:
        if self.value is None:
            return "nothing"
        if isinstance(self.value, dict):
            return "a mapping"
        return "a list" if isinstance(self.value, tuple) else shorten(self.spelling, 40)


def known_names_hint(word: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown *word*, for the end of an error message: the closest known word, or all of them."""
    words = sorted(known)
    near = difflib.get_close_matches(word, words, n=1)
    return f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(words)}"


def shorten(text: str, length: int) -> str:
    """Return *text* in quotes on one line; the middle is omitted if the text is longer than *length*."""
    half = length // 2
    return repr(text if len(text) <= length else f"{text[:half]} ... {text[-half:]}")


def read_yaml(text: str, name: str) -> YamlNode | None:
    """Parse the single YAML document of *text*; None if it is empty. *name* is the name of its root in errors.

    Raises `LineInvalid` for invalid YAML, a repeated key, an unknown tag or alias, more than `DEPTH_LIMIT` levels or
    more than `NODE_LIMIT` values.
    """
    try:
        return _Reader(yaml.parse(text, Loader=yaml.CBaseLoader)).document(name)
    except yaml.MarkedYAMLError as exc:
        # The mark may be behind the last line that an editor shows.
        last = len(text.rstrip("\n").split("\n"))
        line = min(exc.problem_mark.line + 1, last) if exc.problem_mark else 1
        raise LineInvalid(line, f"the text is not valid YAML: {_problem(exc)}") from exc
    except yaml.reader.ReaderError as exc:
        line = text.encode()[: exc.position].count(b"\n") + 1
        raise LineInvalid(line, f"the text is not valid YAML: {exc.reason}") from exc
    except UnicodeEncodeError as exc:
        line = text.count("\n", 0, exc.start) + 1
        raise LineInvalid(line, "the text is not valid YAML: half of a surrogate pair") from exc


def _problem(exc: yaml.MarkedYAMLError) -> str:
    if not exc.context or not exc.context_mark:
        return exc.problem or str(exc)
    return f"{exc.problem} {exc.context} that starts on line {exc.context_mark.line + 1}"


@attrs.define(eq=False)
class _Reader:
    """Builds the tree of `YamlNode` objects of one text from the events of the YAML parser."""

    events: Iterator[Any]
    anchors: dict[str, tuple[YamlNode, int]] = attrs.field(factory=dict)
    """Nodes with an anchor (`&name`), each with the number of values that it contains."""
    made: int = 0

    def document(self, name: str) -> YamlNode | None:
        next(self.events)  # start of the stream
        if isinstance(next(self.events), yaml.StreamEndEvent):
            return None
        root = self.node(next(self.events), name, DEPTH_LIMIT)
        next(self.events)  # end of the document
        after = next(self.events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise LineInvalid(after.start_mark.line + 1, "a second YAML document starts here; keep only one")
        return root

    def node(self, event: Any, name: str, depth: int) -> YamlNode:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            return self.alias(str(event.anchor), name, line)
        if depth == 0:
            raise LineInvalid(line, f"the value is nested deeper than {DEPTH_LIMIT} levels; use fewer levels")
        before = self.made
        self.grow(1, line)
        node = self.built(event, name, line, depth)
        if event.anchor:
            self.anchors[event.anchor] = (node, self.made - before)
        return node

    def grow(self, count: int, line: int) -> None:
        self.made += count
        if self.made > NODE_LIMIT:
            raise LineInvalid(line, f"the file has more than {NODE_LIMIT:,} values; make it smaller")

    def alias(self, anchor: str, name: str, line: int) -> YamlNode:
        if anchor not in self.anchors:
            raise LineInvalid(line, f"the alias *{anchor} has no anchor &{anchor} before it; add the anchor")
        node, size = self.anchors[anchor]
        self.grow(size, line)
        return attrs.evolve(node, name=name)

    def built(self, event: Any, name: str, line: int, depth: int) -> YamlNode:
        if event.tag is not None and not (isinstance(event, yaml.ScalarEvent) and event.tag in _TEXT_TAGS):
            raise LineInvalid(line, f"unknown YAML tag {event.tag}; remove it")
        if isinstance(event, yaml.ScalarEvent):
            value = event.value if event.tag or not event.implicit[0] else _resolved(event.value, line)
            return YamlNode(name=name, line=line, value=value, spelling=event.value)
        if isinstance(event, yaml.SequenceStartEvent):
            return YamlNode(name=name, line=line, value=tuple(self.members(name, depth - 1)))
        return self.mapping(name, line, depth - 1)

    def members(self, name: str, depth: int) -> Iterator[YamlNode]:
        number = 0
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            number += 1
            yield self.node(event, f"{name}[{number}]", depth)

    def mapping(self, name: str, line: int, depth: int) -> YamlNode:
        value: dict[str, YamlNode] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.node(event, f"a key of {name}", depth).text()
            at = event.start_mark.line + 1
            if key in value:
                raise LineInvalid(at, f"the key {key!r} of {name} is also on line {lines[key]}; remove one of them")
            lines[key] = at
            value[key] = self.node(next(self.events), key, depth)
        return YamlNode(name=name, line=line, value=value, key_lines=lines)


def _resolved(text: str, line: int) -> Scalar:
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text) or _FALSE.fullmatch(text):
        return bool(_TRUE.fullmatch(text))
    if _INTEGER.fullmatch(text):
        # JSON encoders support 64 bits, and int() refuses thousands of digits.
        if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
            raise LineInvalid(line, f"the number {shorten(text, 40)} is too large; quote it to make it text")
        return int(text)
    if _FLOAT.fullmatch(text):
        if not math.isfinite(number := float(text)):
            raise LineInvalid(line, f"the number {shorten(text, 40)} is too large; quote it to make it text")
        return number
    return text

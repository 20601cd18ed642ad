"""Grammar of scenario files: types of values and mappings, each with its parser and its JSON Schema."""

from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, Generic, TypeVar

import attrs

from coterie.scenarios.api_server.script.located_yaml import YamlNode, known_names_hint
from coterie.scenarios.runner.event_pattern import EventPattern, parse_pattern
from coterie.scenarios.runner.parsing.parse_errors import ParseErrors

Value = TypeVar("Value")
Schema = dict[str, Any]


@attrs.frozen
class ValueType(Generic[Value]):
    """Type of a value in a scenario file, such as seconds: its parser, which raises `LineInvalid`, and JSON Schema."""

    parse: Callable[[YamlNode], Value]
    schema: Schema


@attrs.frozen
class Keys:
    """Type of a mapping in a scenario file: its possible keys with their value types, and its required keys."""

    types: Mapping[str, ValueType[Any]]
    required: tuple[str, ...] = ()

    def parse(self, node: YamlNode, errors: ParseErrors, name: str) -> dict[str, Any]:
        """Return the parsed values of the mapping *node*, called *name* in errors; unknown keys are added to *errors*.

        Raises `LineInvalid` for an invalid value or a missing key.
        """
        fields = errors.fields(node, self.types, "a mapping")
        for key in self.required:
            if key not in fields:
                raise node.refuse(f"{name} needs {key!r}; add this key to its mapping")
        return {key: self.types[key].parse(value) for key, value in fields.items()}

    def schema(self) -> Schema:
        """Return the JSON Schema of a mapping with these keys."""
        return mapping_schema({key: type_.schema for key, type_ in self.types.items()}, self.required)


def mapping_schema(properties: Mapping[str, Schema], required: Iterable[str] = ()) -> Schema:
    """Return the JSON Schema of a non-empty mapping that has all keys *required* and no keys except *properties*."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [*required],
        "additionalProperties": False,
        "minProperties": 1,
    }


def list_schema(items: Schema) -> Schema:
    """Return the JSON Schema of a non-empty list; *items* is the schema of each item."""
    return {"type": "array", "items": items, "minItems": 1}


def one_of(names: Collection[str], problem: str) -> ValueType[Any]:
    """Return the type of a text that must be one of *names*; *problem* is the error text, with `{}` for the text."""

    def parse(node: YamlNode) -> str:
        name = node.text()
        if name not in names:
            raise node.refuse(f"{problem.format(repr(name))}; {known_names_hint(name, names)}")
        return name

    return ValueType(parse, {"enum": list(names)})


def _from_0(node: YamlNode) -> int:
    if not isinstance(node.value, int) or isinstance(node.value, bool) or node.value < 0:
        raise node.refuse_as("a whole number from 0")
    return node.value


def _boolean(node: YamlNode) -> bool:
    if not isinstance(node.value, bool):
        raise node.refuse_as("true or false")
    return node.value


def _true(node: YamlNode) -> bool:
    if node.value is not True:
        raise node.refuse_as("true or left out")
    return True


def _dollars(node: YamlNode) -> Decimal:
    if not isinstance(node.value, int | float) or isinstance(node.value, bool) or node.value < 0:
        raise node.refuse_as("an amount of dollars from 0")
    return Decimal(node.spelling)


TEXT = ValueType(YamlNode.text, {"type": ["string", "number", "boolean"]})
SECONDS = ValueType(YamlNode.seconds, {"type": "number", "minimum": 0})
DOLLARS = ValueType(_dollars, {"type": "number", "minimum": 0})
COUNT = ValueType(YamlNode.count, {"type": "integer", "minimum": 1})
FROM_0 = ValueType(_from_0, {"type": "integer", "minimum": 0})
TIMES = ValueType(YamlNode.times, {"anyOf": [COUNT.schema, {"const": "always"}]})
BOOLEAN = ValueType(_boolean, {"type": "boolean"})
TRUE = ValueType(_true, {"const": True})
EVENT: ValueType[EventPattern] = ValueType(parse_pattern, {"$ref": "#/$defs/event"})

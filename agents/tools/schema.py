"""Conversion of a tool's input class to a JSON Schema, and of the model's input to an instance of the class."""

import functools
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs
import msgspec

from coterie.agents.errors import ToolFailed
from coterie.suggestions import did_you_mean

Input = TypeVar("Input", bound=attrs.AttrsInstance)

PLAIN: Mapping[Any, tuple[str, str]] = {
    str: ("string", "a string"),
    int: ("integer", "an integer"),
    float: ("number", "a number"),
    bool: ("boolean", "true or false"),
    types.NoneType: ("null", "null"),
    dict[str, Any]: ("object", "an object"),
}
"""Python type -> its name in JSON Schema, and its description for error messages."""


def input_schema(input_type: type[attrs.AttrsInstance]) -> dict[str, Any]:
    """Build the JSON Schema of *input_type*, the argument class of a tool, with properties in the order of its fields.

    Fields may be `str`, `int`, `float`, `bool`, `dict[str, Any]`, None, a `Literal`, and lists and unions of these;
    `Annotated[type, text]` describes a field to the model. Raises `TypeError` for any other type.
    """
    hints = get_type_hints(input_type, include_extras=True)
    fields = attrs.fields(input_type)
    return {
        "type": "object",
        "properties": {field.name: _property(field, hints[field.name]) for field in fields},
        "required": [field.name for field in fields if field.default is attrs.NOTHING],
        "additionalProperties": False,
    }


def parse_input(input_type: type[Input], value: Mapping[str, Any]) -> Input:
    """Convert *value*, the JSON input of a tool call, to an instance of *input_type*.

    Raises `ToolFailed` with a text that names every unknown, missing and wrongly typed field. The only implicit
    conversion is from an integer to a float.
    """
    fields = {field.name: field for field in attrs.fields(input_type)}
    hints = _hints(input_type)
    problems = [f"unknown field {name!r}: {did_you_mean(name, fields)}" for name in value if name not in fields]
    converted: dict[str, Any] = {}
    for name, field in fields.items():
        try:
            if name in value:
                converted[name] = msgspec.convert(value[name], hints[name])
            elif field.default is attrs.NOTHING:
                problems.append(f"missing field {name!r}: it must be {_type_text(hints[name])}")
        except msgspec.ValidationError as exc:
            problems.append(f"field {name!r} must be {_type_text(hints[name])}: {exc}")
    if problems:
        raise ToolFailed(f"The input is invalid. Correct it and call the tool again: {'; '.join(problems)}")
    return input_type(**converted)


@functools.cache
def _hints(input_type: type[attrs.AttrsInstance]) -> dict[str, Any]:
    return get_type_hints(input_type)


def _property(field: "attrs.Attribute[Any]", hint: Any) -> dict[str, Any]:
    schema = _schema_of(hint)
    # A default factory and the default None are omitted, because they give the model no information.
    if isinstance(field.default, str | int | float):
        schema["default"] = field.default
    return schema


def _schema_of(hint: Any) -> dict[str, Any]:
    if hint in PLAIN:
        return {"type": PLAIN[hint][0]}
    if get_origin(hint) is Annotated:
        type_, description = get_args(hint)
        return {**_schema_of(type_), "description": description}
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if get_origin(hint) is list:
        return {"type": "array", "items": _schema_of(*get_args(hint))}
    return {"anyOf": [_schema_of(part) for part in _alternatives(hint)]}


def _type_text(hint: Any) -> str:
    if hint in PLAIN:
        return PLAIN[hint][1]
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    if get_origin(hint) is list:
        return f"a list, each item {_type_text(*get_args(hint))}"
    return " or ".join(map(_type_text, _alternatives(hint)))


def _alternatives(hint: Any) -> Iterator[Any]:
    if get_origin(hint) not in (Union, types.UnionType):
        raise TypeError(
            f"a field in the input class of a tool has the type {hint!r}; use a type that `input_schema` lists"
        )
    yield from get_args(hint)

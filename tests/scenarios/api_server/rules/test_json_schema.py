from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.scenarios.api_server.request.errors import ApiError
from coterie.scenarios.api_server.rules.schema import check_schema, violations
from tests.examples import examples

Schema = dict[str, Any]

NOT = "are not supported"
SIMPLE = "strings, numbers, booleans and null"
TYPES = "object, array, string, integer, number, boolean, null"
NEEDS_FALSE = "For 'object' type, 'additionalProperties' must be explicitly set to false"


def record(**properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def refusal(schema: Any) -> str | None:
    try:
        check_schema(schema, "s")
    except ApiError as error:
        return error.message
    return None


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object"}, f"s: {NEEDS_FALSE}"),
        ({"type": "object", "additionalProperties": True}, f"s: {NEEDS_FALSE}"),
        ({"type": ["object", "null"]}, f"s: {NEEDS_FALSE}"),
        ({"properties": {}}, f"s: {NEEDS_FALSE}"),
        (record(a={"type": "object"}), f"s.properties.a: {NEEDS_FALSE}"),
        ({"type": "array", "items": {"type": "object"}}, f"s.items: {NEEDS_FALSE}"),
        ({"anyOf": [{"type": "null"}, {"type": "object"}]}, f"s.anyOf.1: {NEEDS_FALSE}"),
        ({"$defs": {"d": {"type": "object"}}}, f"s.$defs.d: {NEEDS_FALSE}"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, f"s: For 'integer' type, properties maximum, minimum {NOT}"),
        ({"type": "number", "multipleOf": 2}, f"s: For 'number' type, properties multipleOf {NOT}"),
        ({"type": "string", "maxLength": 9}, f"s: For 'string' type, properties maxLength {NOT}"),
        ({"type": ["null", "string"], "minLength": 1}, f"s: For 'string' type, properties minLength {NOT}"),
        ({"type": "array", "maxItems": 3}, f"s: For 'array' type, properties maxItems {NOT}"),
        ({"type": "array", "minItems": 2}, f"s: For 'array' type, 'minItems' values other than 0 or 1 {NOT}"),
        ({"oneOf": [{"type": "null"}]}, "s: properties oneOf are not supported"),
        ({"not": {}}, "s: properties not are not supported"),
        ({"$ref": "https://a.b/s.json"}, "s.$ref: External references are not supported: https://a.b/s.json"),
        ({"$ref": 1}, "s.$ref: External references are not supported: 1"),
        ({"$ref": "#/$defs/d"}, "s.$ref: No such definition: #/$defs/d"),
        (record(a={"$ref": "#"}), "s.properties.a.$ref: Recursive schemas are not supported: #"),
        (
            {"$defs": {"d": {"$ref": "#/$defs/e"}, "e": {"type": "array", "items": {"$ref": "#/$defs/d"}}}},
            "s.$defs.d.items.$ref: Recursive schemas are not supported: #/$defs/e",
        ),
        ({"type": "text"}, f"s.type: Input should be one of {TYPES}"),
        ({"type": []}, f"s.type: Input should be one of {TYPES}"),
        ({"enum": []}, "s.enum: Input should be a non-empty list"),
        ({"enum": 1}, "s.enum: Input should be a non-empty list"),
        ({"enum": [{}]}, f"s: 'enum' and 'const' take {SIMPLE} only"),
        ({"const": []}, f"s: 'enum' and 'const' take {SIMPLE} only"),
        ({"anyOf": []}, "s.anyOf: Input should be a non-empty list"),
        ({"allOf": {}}, "s.allOf: Input should be a non-empty list"),
        ({"required": "a"}, "s.required: Input should be a list of strings"),
        ({"required": [1]}, "s.required: Input should be a list of strings"),
        ({"properties": [], "additionalProperties": False}, "s.properties: Input should be a valid dictionary"),
        (record(a=True), "s.properties.a: Input should be a valid dictionary"),
        ([], "s: Input should be a valid dictionary"),
        ({}, None),
        (record(), None),
        ({"type": ["object", "null"], "additionalProperties": False}, None),
        (record(a={"type": "integer", "description": "d", "title": "t", "default": 1}), None),
        ({"type": "string", "format": "date-time"}, None),
        ({"type": "array", "items": {"type": "number"}, "minItems": 1}, None),
        ({"type": "array", "minItems": 0}, None),
        ({"anyOf": [{"type": "null"}, {"const": "a"}], "allOf": [{"enum": [1, "a", None, True]}]}, None),
        ({**record(a={"$ref": "#/$defs/d"}, b={"$ref": "#/$defs/d"}), "$defs": {"d": {"type": "string"}}}, None),
        ({"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"type": "null"}}}, None),
        ({**record(minimum={"type": "integer"}, minLength={"type": "string"}), "required": ["minLength"]}, None),
    ],
)
def test_what_the_api_does_not_support_is_refused_with_its_place(schema: Any, message: str | None) -> None:
    assert refusal(schema) == message


@pytest.mark.parametrize("order", [1, -1])
def test_references_that_multiply_or_pile_up_are_too_complex(order: int) -> None:
    """Written out, each would be a schema that no check ends on, in whatever order its parts are met."""
    doubling = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(30)} | {"d30": {}}
    piling = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(500)} | {"d500": {}}
    for definitions in (doubling, piling):
        message = refusal({"$defs": dict(list(definitions.items())[::order])})
        assert message is not None
        assert message.endswith("Schema is too complex")


NAMED = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        (1, {"type": "integer"}, []),
        (1.0, {"type": "integer"}, []),
        (1.5, {"type": "integer"}, ["$: expected integer, found number"]),
        (1, {"type": "number"}, []),
        (True, {"type": "integer"}, ["$: expected integer, found boolean"]),
        (None, {"type": ["string", "null"]}, []),
        ([], {"type": ["string", "null"]}, ["$: expected string or null, found array"]),
        ("a", {"enum": ["a", "b"]}, []),
        ("c", {"enum": ["a", "b"]}, ["$: 'c' is not one of the enumerated values"]),
        (1, {"enum": [True]}, ["$: 1 is not one of the enumerated values"]),
        (True, {"const": 1}, ["$: expected the constant 1"]),
        (1, {"const": 1.0}, []),
        ([], {"type": "array", "minItems": 1}, ["$: expected at least 1 item"]),
        ([1, "a"], {"type": "array", "items": {"type": "integer"}}, ["$[1]: expected integer, found string"]),
        ({}, record(a={}), []),
        ({"b": 1}, record(a={}), ["$: property 'b' is not allowed"]),
        ({}, {**record(a={}), "required": ["a"]}, ["$: required property 'a' is missing"]),
        ({"a": [0]}, record(a={"items": {"type": "null"}}), ["$.a[0]: expected null, found integer"]),
        (1, {"anyOf": [{"type": "string"}, {"type": "integer"}]}, []),
        ([], {"anyOf": [{"type": "string"}, {"type": "integer"}]}, ["$: matches no alternative of anyOf"]),
        (1, {"allOf": [{"type": "integer"}, {"enum": [2]}]}, ["$: 1 is not one of the enumerated values"]),
        ({"n": 1}, {**NAMED, "$defs": {"n": {"type": "integer"}}}, []),
        ({"n": "x"}, {**NAMED, "$defs": {"n": {"type": "integer"}}}, ["$.n: expected integer, found string"]),
        ({"n": 1}, NAMED, ["$.n: the reference #/$defs/n leads nowhere"]),
        ("2026", {"type": "string", "format": "date-time"}, []),
        (1, False, ["$: no value is allowed here"]),
        (1, True, []),
    ],
)
def test_violations_are_named_by_their_path(value: Any, schema: Any, expected: list[str]) -> None:
    assert violations(value, schema) == expected


def test_a_recursive_schema_ends_with_its_value() -> None:
    """Only a strict server refuses recursion, so checking a value must not depend on that."""
    tree = {"type": "array", "items": {"$ref": "#/$defs/t"}}
    assert violations([[], [[]]], {**tree, "$defs": {"t": tree}}) == []
    loop = {"$ref": "#/$defs/t", "$defs": {"t": {"$ref": "#/$defs/t"}}}
    assert violations(1, loop) == ["$: the reference #/$defs/t leads nowhere"]


KEYWORDS = ("type", "properties", "required", "enum", "const", "items", "anyOf", "allOf", "$ref", "$defs", "minItems")
JSON = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.5, "object", "array", "integer", "a", "#/$defs/a", "#"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYWORDS, "a"]), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@examples(80)
@given(value=JSON, schema=JSON)
def test_any_schema_is_taken_or_refused_and_any_value_checked(value: Any, schema: Any) -> None:
    refusal(schema)
    assert isinstance(violations(value, schema), list)

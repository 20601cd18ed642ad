"""Validation with the subset of JSON Schema that the API supports, for structured outputs and strict tools."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from coterie.scenarios.api_server.request.errors import ApiError, invalid_request

TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")

UNSUPPORTED: Mapping[str, tuple[str, ...]] = {
    "object": ("maxProperties", "minProperties", "patternProperties", "propertyNames"),
    "array": ("contains", "maxItems", "prefixItems", "uniqueItems"),
    "string": ("maxLength", "minLength"),
    "number": ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"),
    "integer": ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"),
}
"""Keywords that the API refuses in a schema, by JSON type. Annotations and `format` are accepted and ignored."""

UNSUPPORTED_ANYWHERE = ("dependentSchemas", "else", "if", "not", "oneOf", "then")
DEFINITIONS = ("$defs", "definitions")
SIZE_LIMIT = 10_000
HEIGHT_LIMIT = 100
"""Maximum depth of nested sub-schemas, with references expanded; `SIZE_LIMIT` is the maximum number of sub-schemas."""


def check_schema(schema: Any, path: str) -> None:
    """Raise `ApiError` (400) with the path of an unsupported part of *schema*; *path* is the place of the schema.

    An accepted schema is finite and small, so `violations` terminates quickly on it.
    """
    _SchemaCheck(root=schema).check(schema, path, ())


def violations(value: Any, schema: Any) -> list[str]:
    """Return the differences between *value* and *schema*, each with its JSON path; empty if *value* is valid.

    Keywords outside the supported subset are ignored. An unresolved reference is a violation.
    """
    return list(_violations(value, schema, "$", schema, ()))


@attrs.frozen(kw_only=True)
class _Extent:
    """Number of sub-schemas and nesting depth of a schema, with its references expanded."""

    size: int = 1
    height: int = 1

    def above(self, part: "_Extent") -> "_Extent":
        return _Extent(size=self.size + part.size, height=max(self.height, 1 + part.height))


@attrs.define(eq=False)
class _SchemaCheck:
    """Check that a schema has only supported parts and no recursion; a referenced definition is checked once."""

    root: Any
    known: dict[str, _Extent] = attrs.field(factory=dict)

    def check(self, schema: Any, path: str, trail: tuple[str, ...], depth: int = 1) -> _Extent:
        """Check the sub-schema at *path* and return its size. Raises `ApiError` (400) for the first unsupported part.

        *trail* contains the references that led to this sub-schema, so that a recursive schema is detected.
        """
        if depth > HEIGHT_LIMIT:
            raise _too_complex(path)
        if not isinstance(schema, dict):
            raise invalid_request(f"{path}: Input should be a valid dictionary")
        _keywords_are_supported(schema, path)
        extent = _Extent()
        if "$ref" in schema:
            extent = extent.above(self._follow(schema["$ref"], path, trail, depth))
        for name, part in _parts(schema, path):
            extent = extent.above(self.check(part, f"{path}.{name}", trail, depth + 1))
        if extent.size > SIZE_LIMIT or extent.height > HEIGHT_LIMIT:
            raise _too_complex(path)
        return extent

    def _follow(self, reference: Any, path: str, trail: tuple[str, ...], depth: int) -> _Extent:
        if reference in trail or reference == "#":
            raise invalid_request(f"{path}.$ref: Recursive schemas are not supported: {reference}")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise invalid_request(f"{path}.$ref: External references are not supported: {reference}")
        if reference not in self.known:
            target = _resolve(reference, self.root)
            if target is None:
                raise invalid_request(f"{path}.$ref: No such definition: {reference}")
            self.known[reference] = self.check(target, path, (*trail, reference), depth + 1)
        return self.known[reference]


def _too_complex(path: str) -> ApiError:
    return invalid_request(f"{path}: Schema is too complex")


def _keywords_are_supported(schema: Mapping[str, Any], path: str) -> None:
    value = schema.get("type", [])
    types = value if isinstance(value, list) else [value]
    if any(kind not in TYPES for kind in types) or ("type" in schema and not types):
        raise invalid_request(f"{path}.type: Input should be one of {', '.join(TYPES)}")
    for kind in types:
        _refuse_keywords(schema, UNSUPPORTED.get(kind, ()), f"For '{kind}' type, properties", path)
    _refuse_keywords(schema, UNSUPPORTED_ANYWHERE, "properties", path)
    if ("object" in types or "properties" in schema) and schema.get("additionalProperties") is not False:
        raise invalid_request(f"{path}: For 'object' type, 'additionalProperties' must be explicitly set to false")
    if schema.get("minItems", 0) not in (0, 1):
        raise invalid_request(f"{path}: For 'array' type, 'minItems' values other than 0 or 1 are not supported")
    _literals_are_plain(schema, path)
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise invalid_request(f"{path}.required: Input should be a list of strings")


def _refuse_keywords(schema: Mapping[str, Any], keywords: Sequence[str], subject: str, path: str) -> None:
    found = [name for name in keywords if name in schema]
    if found:
        raise invalid_request(f"{path}: {subject} {', '.join(found)} are not supported")


def _literals_are_plain(schema: Mapping[str, Any], path: str) -> None:
    enum = schema.get("enum", [None])
    if not isinstance(enum, list) or not enum:
        raise invalid_request(f"{path}.enum: Input should be a non-empty list")
    if any(isinstance(value, dict | list) for value in [*enum, schema.get("const")]):
        raise invalid_request(f"{path}: 'enum' and 'const' take strings, numbers, booleans and null only")


def _parts(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield the sub-schemas of *schema* with relative paths. Raises `ApiError` if, say, `properties` is no object."""
    for keyword in ("properties", *DEFINITIONS):
        named = schema.get(keyword, {})
        if not isinstance(named, dict):
            raise invalid_request(f"{path}.{keyword}: Input should be a valid dictionary")
        yield from ((f"{keyword}.{name}", part) for name, part in named.items())
    for keyword in ("anyOf", "allOf"):
        if keyword not in schema:
            continue
        several = schema[keyword]
        if not isinstance(several, list) or not several:
            raise invalid_request(f"{path}.{keyword}: Input should be a non-empty list")
        yield from ((f"{keyword}.{index}", part) for index, part in enumerate(several))
    if "items" in schema:
        yield "items", schema["items"]


def _resolve(reference: str, root: Any) -> Any:
    """Return the definition in *root* that a local *reference* such as `#/$defs/a` names; None if there is none."""
    keyword, _, name = reference.removeprefix("#/").partition("/")
    if keyword not in DEFINITIONS or not isinstance(root, dict):
        return None
    definitions = root.get(keyword)
    return definitions.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(definitions, dict) else None


def _violations(value: Any, schema: Any, path: str, root: Any, trail: tuple[str, ...]) -> Iterator[str]:
    """Yield the violations of *value* and its parts; *trail* has the references already followed, to stop cycles."""
    if schema is False:
        yield f"{path}: no value is allowed here"
    if not isinstance(schema, dict):
        return
    yield from _own_violations(value, schema, path)
    if "$ref" in schema:
        reference = str(schema["$ref"])
        if reference in trail or (target := _resolve(reference, root)) is None:
            yield f"{path}: the reference {reference} leads nowhere"
        else:
            yield from _violations(value, target, path, root, (*trail, reference))
    for part in _listed(schema, "allOf"):
        yield from _violations(value, part, path, root, trail)
    choices = _listed(schema, "anyOf")
    if choices and all(any(_violations(value, choice, path, root, trail)) for choice in choices):
        yield f"{path}: matches no alternative of anyOf"
    if isinstance(value, dict):
        yield from _member_violations(value, schema, path, root)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _violations(item, schema["items"], f"{path}[{index}]", root, ())


def _own_violations(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the violations of *value* itself, without those of its members or items."""
    types = _listed(schema, "type") or [schema.get("type")]
    if types != [None] and not any(_is_of_type(value, kind) for kind in types):
        yield f"{path}: expected {' or '.join(map(str, types))}, found {_type_of(value)}"
    if "const" in schema and not _is_same(value, schema["const"]):
        yield f"{path}: expected the constant {schema['const']!r}"
    if "enum" in schema and not any(_is_same(value, known) for known in _listed(schema, "enum")):
        yield f"{path}: {value!r} is not one of the enumerated values"
    if isinstance(value, list) and not value and schema.get("minItems") == 1:
        yield f"{path}: expected at least 1 item"


def _member_violations(value: Mapping[str, Any], schema: Mapping[str, Any], path: str, root: Any) -> Iterator[str]:
    named = schema.get("properties")
    properties = named if isinstance(named, dict) else {}
    for name in _listed(schema, "required"):
        if isinstance(name, str) and name not in value:
            yield f"{path}: required property {name!r} is missing"
    for name, member in value.items():
        if name in properties:
            yield from _violations(member, properties[name], f"{path}.{name}", root, ())
        elif schema.get("additionalProperties") is False:
            yield f"{path}: property {name!r} is not allowed"


def _listed(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _type_of(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", int: "integer", float: "number", bool: "boolean"}
    return "null" if value is None else names[type(value)]


def _is_of_type(value: Any, kind: Any) -> bool:
    found = _type_of(value)
    if kind == "integer" and found == "number":
        return bool(value.is_integer())
    return found == kind or (kind == "number" and found == "integer")


def _is_same(value: Any, other: Any) -> bool:
    """Return True if two JSON values are equal: 1 equals 1.0, but true does not equal 1."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    return bool(value == other)

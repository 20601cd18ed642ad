"""Conversion of values from TOML, flags and variables to the types of settings."""

import contextlib
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin


class InvalidValue(ValueError):
    """A setting has an invalid value; the message names the value and the expected type."""


def convert(value: object, kind: Any) -> Any:
    """Convert *value* from TOML or a flag to *kind*, the type of a setting. Raises `InvalidValue`."""
    if get_origin(kind) is Literal:
        expected = f"one of {', '.join(get_args(kind))}"
        converted = value if value in get_args(kind) else None
    else:
        expected, convert_value = _KINDS[kind]
        converted = convert_value(value)
    if converted is None:
        raise InvalidValue(f"is {format_value(value)}; it should be {expected}")
    return converted


def parse_text(text: str, kind: Any) -> object:
    """Parse the *text* of an environment variable for a setting of type *kind*; return unparsable text unchanged."""
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind is not str:
        with contextlib.suppress(ValueError):
            return int(text)
    if kind in (float, Decimal):
        with contextlib.suppress(ArithmeticError):
            return Decimal(text)
    return text


def format_value(value: object) -> str:
    """Format a value for an error line."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, str) else str(value)


def _switch(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _whole_number(value: object) -> int | None:
    # bool is a subclass of int.
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _decimal(value: object) -> Decimal | None:
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        return None
    # Converted through str, so that the float 0.1 becomes Decimal("0.1").
    number = Decimal(str(value))
    return number if number.is_finite() and number > 0 else None


def _number(value: object) -> float | None:
    number = _decimal(value)
    return float(number) if number is not None and math.isfinite(float(number)) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _path(value: object) -> Path | None:
    if not isinstance(value, str | Path) or "\0" in str(value):
        return None
    path = Path(value).expanduser() if str(value).startswith("~/") else Path(value)
    return path if path.is_absolute() else None


def _all(value: object, convert_item: Callable[[object], Any]) -> tuple[Any, ...] | None:
    if not isinstance(value, list | tuple):
        return None
    items = tuple(item for each in value if (item := convert_item(each)) is not None)
    return items if len(items) == len(value) else None


_KINDS: Mapping[Any, tuple[str, Callable[[object], Any]]] = {
    bool: ("true or false", _switch),
    int: ("a whole number above 0", _whole_number),
    float: ("a number above 0", _number),
    Decimal: ("a number above 0", _decimal),
    str: ("a text in quotes", _text),
    Path: ("an absolute path in quotes, or one that begins with ~/", _path),
    tuple[str, ...]: ("a list of texts in quotes", partial(_all, convert_item=_text)),
    tuple[Path, ...]: (
        "a list of paths in quotes that are absolute or begin with ~/",
        partial(_all, convert_item=_path),
    ),
}
"""Type of a setting -> its description for errors, and a converter that returns None for an invalid value."""

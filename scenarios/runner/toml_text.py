"""A mapping as TOML: what a story gives inline, and a command reads from a file."""

from collections.abc import Mapping
from typing import Any

import msgspec


def toml_text(mapping: Mapping[str, Any]) -> str:
    """One key a line; tables within it stand inline. Nothing in it is None."""
    return "".join(f"{_quoted(key)} = {_value(value)}\n" for key, value in mapping.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_quoted(key)} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _quoted(value)


def _quoted(value: object) -> str:
    # Texts, numbers and truth are written as JSON writes them, but for one control character.
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")

"""The memories that a model selected, parsed from its answer."""

import json
from collections.abc import Collection
from typing import Any

KEY = "selected_memories"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {KEY: {"type": "array", "items": {"type": "string"}}},
    "required": [KEY],
    "additionalProperties": False,
}
"""What the answer should be."""
TRIES = 50
"""Braces at which an answer may begin."""


def parse_selection(answer: str, known: Collection[str], most: int = 5) -> list[str] | None:
    """The first *most* of the names in *answer* that are *known*, each once; None if there is no choice in it.

    An answer may choose nothing. Prose around the JSON does no harm, and names that are not known are dropped.
    """
    chosen = _names(answer)
    if chosen is None:
        return None
    names = (name.strip().strip("`").removeprefix("./") for name in chosen if isinstance(name, str))
    return list(dict.fromkeys(name for name in names if name in known))[:most]


def _names(answer: str) -> list[Any] | None:
    decoder, start = json.JSONDecoder(), -1
    for _ in range(TRIES):
        start = answer.find("{", start + 1)
        if start < 0:
            return None
        try:
            value, _end = decoder.raw_decode(answer, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(names := value.get(KEY), list):
            return names
    return None

"""Parser of the answer in which a model selects memories for a query, and the JSON Schema of this answer."""

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
"""JSON Schema of the answer in which a model selects memories: an object with a list of their names."""
TRIES = 50
"""Maximum number of opening braces in an answer at which the parser tries to read a JSON object."""


def parse_selection(answer: str, known: Collection[str], most: int = 5) -> list[str] | None:
    """Return the names in *known* that the model's *answer* selects, each once, at most *most*; None if it has no list.

    A selection may be empty. Prose around the JSON object is allowed, and unknown names are dropped.
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

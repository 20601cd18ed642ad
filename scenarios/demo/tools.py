"""The two tools of the demo: they search and read the source of Coterie itself."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

PACKAGE = Path(__file__).parents[2]
"""The import package, whether installed or reached through the links of a checkout."""
FOUND_LIMIT = 20

DEFINITIONS = (
    {
        "name": "search",
        "description": "List the lines of the code base that contain a text, each with its file and line number.",
        "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
    {
        "name": "read",
        "description": "Show one file of the code base whole.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
)


def definitions() -> list[bytes]:
    """The tools as segments of a conversation."""
    return [msgspec.json.encode(definition) for definition in DEFINITIONS]


def run_tool(call: Mapping[str, Any]) -> bytes:
    """Answer one tool call with a `tool_result` block; a failure is a result the model can read."""
    tools: dict[str, Callable[..., str]] = {"search": _search, "read": _read}
    try:
        content, is_error = tools[call["name"]](**call["input"]), False
    except (KeyError, TypeError, OSError, ValueError) as exc:
        content, is_error = f"{call['name']}: {exc}", True
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": content}]}
    return msgspec.json.encode({**result, "is_error": True} if is_error else result)


def _search(text: str) -> str:
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.glob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if text in line
    ]
    return "\n".join(found[:FOUND_LIMIT]) or f"no line contains {text!r}"


def _read(path: str) -> str:
    target = (PACKAGE / path).resolve()
    if not target.is_relative_to(PACKAGE.resolve()):
        raise ValueError(f"{path} is outside the code base")
    return target.read_text()

"""Which tools of a server can be offered to a model: one that the API refuses would spoil every request."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from jsonschema import Draft202012Validator, SchemaError
from mcp_types import Tool

from coterie.agents.mcp.listing import ListedTool
from coterie.agents.mcp.naming import tool_name
from coterie.orchestrator.mcp.words import ListedServer

LONGEST_DESCRIPTION = 2_000
"""Characters of what is said of a tool, or of a server; the rest is cut off."""
LARGEST_SCHEMA = 32_000
"""Bytes."""
LARGEST_LIST = 200_000
"""Bytes of all tools of one server, some 50,000 tokens."""
_NOT_ON_TOP = ("oneOf", "anyOf", "allOf")
"""What the API does not take at the top of a schema."""


def offered(server: str, tools: Iterable[Tool], instructions: str = "") -> ListedServer:
    """The *tools* of *server* by name, with its *instructions*, and why some are left out."""
    listed: dict[str, ListedTool] = {}
    left_out: list[str] = []
    size = 0
    for tool in sorted(tools, key=lambda tool: tool.name):
        found = _listed(server, tool)
        if isinstance(found, str):
            left_out.append(f"{tool.name}: {found}")
        elif found.name in listed:
            left_out.append(f"{tool.name}: another tool is called {found.name} too")
        elif (size := size + len(bytes(found.schema)) + len(found.description)) > LARGEST_LIST:
            left_out.append(f"{tool.name}: all tools of a server together may have {LARGEST_LIST:,} bytes")
        else:
            listed[found.name] = found
    words = instructions.strip()[:LONGEST_DESCRIPTION]
    return ListedServer(name=server, tools=tuple(listed.values()), instructions=words, left_out=tuple(left_out))


def _listed(server: str, tool: Tool) -> ListedTool | str:
    """What is offered, or why it is not."""
    name = tool_name(server, tool.name)
    if name is None:
        return "its name is too long"
    schema = msgspec.json.encode(tool.input_schema)
    if flaw := next(_flaws(tool.input_schema, len(schema)), None):
        return flaw
    return ListedTool(
        name=name,
        server=server,
        tool=tool.name,
        description=(tool.description or tool.title or "")[:LONGEST_DESCRIPTION],
        schema=msgspec.Raw(schema),
    )


def _flaws(schema: dict[str, Any], size: int) -> Iterator[str]:
    if schema.get("type") != "object":
        yield "the schema of its input is not of the type object"
    if word := next((word for word in _NOT_ON_TOP if word in schema), None):
        yield f"the schema of its input has {word} at the top, which the API does not take"
    if size > LARGEST_SCHEMA:
        yield f"the schema of its input has {size:,} bytes, over {LARGEST_SCHEMA:,}"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        yield f"the schema of its input is none: {' '.join(exc.message.split())}"

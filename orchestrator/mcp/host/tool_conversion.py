"""Conversion of MCP tools and results to the form that models accept."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from jsonschema import Draft202012Validator, SchemaError
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)

from coterie.agents.mcp.messages import ToolCalled, ToolImage
from coterie.agents.mcp.tool_list_file import ListedTool
from coterie.agents.mcp.tool_names import tool_name
from coterie.orchestrator.mcp.host_protocol import ListedServer

LONGEST_DESCRIPTION = 2_000
"""Characters of what is said of a tool, or of a server; the rest is cut off."""
LARGEST_SCHEMA = 32_000
"""Bytes."""
LARGEST_LIST = 200_000
"""Bytes of all tools of one server, some 50,000 tokens."""
_NOT_ON_TOP = ("oneOf", "anyOf", "allOf")
"""What the API does not take at the top of a schema."""


def usable_tools(server: str, tools: Iterable[Tool], instructions: str = "") -> ListedServer:
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
    if flaw := next(_schema_problems(tool.input_schema, len(schema)), None):
        return flaw
    return ListedTool(
        name=name,
        server=server,
        tool=tool.name,
        description=(tool.description or tool.title or "")[:LONGEST_DESCRIPTION],
        schema=msgspec.Raw(schema),
    )


def _schema_problems(schema: dict[str, Any], size: int) -> Iterator[str]:
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


def to_content(result: CallToolResult) -> ToolCalled:
    """The answer. What a model cannot be shown is named in its place; facts without words become JSON."""
    texts: list[str] = []
    pictures: list[ToolImage] = []
    for block in result.content:
        if (picture := _image(block)) is not None:
            pictures.append(picture)
        else:
            texts.append(_text(block))
    if result.structured_content is not None and not any(texts):
        texts.append(msgspec.json.encode(result.structured_content).decode())
    return ToolCalled(text="\n".join(texts), pictures=pictures, is_error=bool(result.is_error))


def _image(block: ContentBlock) -> ToolImage | None:
    match block:
        case ImageContent():
            return ToolImage(media_type=block.mime_type, data=block.data)
        case EmbeddedResource(resource=BlobResourceContents() as blob) if (blob.mime_type or "").startswith("image/"):
            return ToolImage(media_type=blob.mime_type or "", data=blob.blob)
        case _:
            return None


def _text(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return f"[{resource.uri}]\n{resource.text}"
        case EmbeddedResource():
            return f"[{block.resource.uri}: {block.resource.mime_type or 'bytes'}, which cannot be shown]"
        case ResourceLink():
            about = f": {block.description}" if block.description else ""
            return f"[{block.name}, {block.uri}{about}]"
        case AudioContent():
            return f"[sound of the type {block.mime_type}, which cannot be shown]"
        case _:
            return f"[{block.type}, which cannot be shown]"

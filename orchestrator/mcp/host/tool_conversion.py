"""Conversion of the tools and results of MCP servers to a form that the model API accepts, with size limits."""

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
"""Maximum length of a tool's description or a server's instructions, in characters; longer text is cut."""
LARGEST_SCHEMA = 32_000
"""Maximum size of a tool's input schema, in bytes; a tool with a larger schema is left out."""
LARGEST_LIST = 200_000
"""Maximum sum of bytes of schemas and characters of descriptions of one server's tools; further tools are left out."""
_NOT_ON_TOP = ("oneOf", "anyOf", "allOf")
"""JSON Schema keywords that the model API does not accept at the top level of a tool's input schema."""


def usable_tools(server: str, tools: Iterable[Tool], instructions: str = "") -> ListedServer:
    """Return the *tools* of *server* that the model API accepts, and for each other tool the reason it is left out."""
    listed: dict[str, ListedTool] = {}
    left_out: list[str] = []
    size = 0
    for tool in sorted(tools, key=lambda tool: tool.name):
        found = _listed(server, tool)
        if isinstance(found, str):
            left_out.append(f"{tool.name}: {found}")
        elif found.name in listed:
            left_out.append(f"{tool.name}: another tool has the name {found.name} too; rename one in the server")
        elif (size := size + len(bytes(found.schema)) + len(found.description)) > LARGEST_LIST:
            left_out.append(f"{tool.name}: the tools of one server may have at most {LARGEST_LIST:,} bytes together")
        else:
            listed[found.name] = found
    text = instructions.strip()[:LONGEST_DESCRIPTION]
    return ListedServer(name=server, tools=tuple(listed.values()), instructions=text, left_out=tuple(left_out))


def _listed(server: str, tool: Tool) -> ListedTool | str:
    """Return *tool* in the form for the model API, or the reason why the API would not accept it."""
    name = tool_name(server, tool.name)
    if name is None:
        return "its name is empty or too long for the model API"
    schema = msgspec.json.encode(tool.input_schema)
    if problem := next(_schema_problems(tool.input_schema, len(schema)), None):
        return problem
    return ListedTool(
        name=name,
        server=server,
        tool=tool.name,
        description=(tool.description or tool.title or "")[:LONGEST_DESCRIPTION],
        schema=msgspec.Raw(schema),
    )


def _schema_problems(schema: dict[str, Any], size: int) -> Iterator[str]:
    if schema.get("type") != "object":
        yield "its input schema is not of type object, which the model API requires"
    if keyword := next((keyword for keyword in _NOT_ON_TOP if keyword in schema), None):
        yield f"its input schema has {keyword} at the top level, which the model API does not accept"
    if size > LARGEST_SCHEMA:
        yield f"its input schema has {size:,} bytes, over {LARGEST_SCHEMA:,}, the limit"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        yield f"its input schema is invalid: {' '.join(exc.message.split())}"


def to_content(result: CallToolResult) -> ToolCalled:
    """Convert a tool result to text and images; audio becomes a note, structured content JSON if there is no text."""
    texts: list[str] = []
    pictures: list[ToolImage] = []
    for block in result.content:
        match block:
            case ImageContent():
                pictures.append(ToolImage(media_type=block.mime_type, data=block.data))
            case EmbeddedResource(resource=BlobResourceContents(mime_type=str(kind)) as blob) if kind.startswith(
                "image/"
            ):
                pictures.append(ToolImage(media_type=kind, data=blob.blob))
            case _:
                texts.append(_text(block))
    if result.structured_content is not None and not any(texts):
        texts.append(msgspec.json.encode(result.structured_content).decode())
    return ToolCalled(text="\n".join(texts), pictures=pictures, is_error=bool(result.is_error))


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
            return f"[audio of type {block.mime_type}, which cannot be shown]"
        case _:
            return f"[{block.type}, which cannot be shown]"

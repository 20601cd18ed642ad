"""What a server answers, as text and images for a model."""

import msgspec
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
)

from coterie.agents.mcp.words import Picture, ToolCalled


def in_words(result: CallToolResult) -> ToolCalled:
    """The answer. What a model cannot be shown is named in its place; facts without words become JSON."""
    texts: list[str] = []
    pictures: list[Picture] = []
    for block in result.content:
        if (picture := _picture(block)) is not None:
            pictures.append(picture)
        else:
            texts.append(_text(block))
    if result.structured_content is not None and not any(texts):
        texts.append(msgspec.json.encode(result.structured_content).decode())
    return ToolCalled(text="\n".join(texts), pictures=pictures, is_error=bool(result.is_error))


def _picture(block: ContentBlock) -> Picture | None:
    match block:
        case ImageContent():
            return Picture(media_type=block.mime_type, data=block.data)
        case EmbeddedResource(resource=BlobResourceContents() as blob) if (blob.mime_type or "").startswith("image/"):
            return Picture(media_type=blob.mime_type or "", data=blob.blob)
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

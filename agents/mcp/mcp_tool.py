"""Tool of an MCP server, in the form in which an agent offers it to the model."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import ClassVar

import attrs
import msgspec

from coterie.agents.errors import ToolFailed
from coterie.agents.mcp.client import McpClient
from coterie.agents.mcp.messages import ToolImage
from coterie.agents.mcp.tool_list_file import ListedTool
from coterie.agents.tools.files.images import media_type_of, show_image
from coterie.agents.tools.tool import Access, ExternalInput, ExternalTool, Image, ToolResult, Workspace

RESULT_CAP = 100_000
"""Nominal limit of a tool result in characters (about 25,000 tokens); the limit applied is in the settings."""
PICTURES = 10
"""Maximum number of images of one tool result that are shown to the model."""


@attrs.frozen(kw_only=True)
class McpTool(ExternalTool):
    """One tool of one MCP server, for one agent. Its effects are unknown, so rules treat it like a command."""

    listed: ListedTool
    caller: McpClient

    access: ClassVar[Access] = "run"
    result_cap: ClassVar[int | None] = RESULT_CAP

    @property
    def name(self) -> str:
        """Name of the tool for the model, which contains the name of its server."""
        return self.listed.name

    @property
    def description(self) -> str:
        """Description of the tool for the model, written by the server."""
        return self.listed.description

    @property
    def schema(self) -> msgspec.Raw:
        """JSON Schema of the input, as the server sent it; always the same bytes."""
        return self.listed.schema

    async def run(self, arguments: ExternalInput, _workspace: Workspace) -> ToolResult:
        """Call the tool on its server and return the result, which may be an error. Raises `ToolFailed` without one."""
        answer = await self.caller.call(self.listed.server, self.listed.tool, arguments.values)
        if answer.is_error:  # The API does not accept images in an error result.
            return ToolResult(text=answer.text, is_error=True)
        shown = [_shown(picture, number) for number, picture in enumerate(answer.pictures[:PICTURES], 1)]
        texts = [answer.text, *(text for text, _ in shown)]
        if len(answer.pictures) > PICTURES:
            texts.append(f"[{len(answer.pictures) - PICTURES} more images are omitted]")
        images = tuple(image for _, image in shown if image is not None)
        return ToolResult(text="\n".join(filter(None, texts)), images=images)


def mcp_tools(listed: Sequence[ListedTool], caller: McpClient) -> Mapping[str, McpTool]:
    """Return the tools *listed* for the session as tools of one agent, by name, in the same order."""
    return {each.name: McpTool(listed=each, caller=caller) for each in listed}


def _shown(picture: ToolImage, number: int) -> tuple[str, Image | None]:
    """Return a text about *picture*, image *number* of a result, and the image itself if the model can read it."""
    try:
        content = base64.b64decode(picture.data, validate=True)
    except binascii.Error:
        content = b""
    media_type = media_type_of(content)
    if media_type is None:
        return f"[image {number}: of the type {picture.media_type}, which cannot be shown]", None
    try:
        result = show_image(f"image {number}", media_type, content)
    except ToolFailed as exc:
        return f"[{exc.reason}]", None
    return result.text, result.images[0]

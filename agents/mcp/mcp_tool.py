"""Tool of an MCP server, as the model calls it."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import attrs
import msgspec

from coterie.agents.errors import ToolFailed
from coterie.agents.mcp.client import McpClient
from coterie.agents.mcp.messages import ToolImage
from coterie.agents.mcp.tool_list_file import ListedTool
from coterie.agents.tools.files.images import media_type_of, show_image
from coterie.agents.tools.tool import Access, ExternalInput, Image, ToolResult, Workspace

RESULT_CAP = 100_000
"""Characters over which a result is stored: some 25,000 tokens."""
PICTURES = 10
"""Images of one result that the model is shown."""


@attrs.frozen(kw_only=True)
class McpTool:
    """One tool of one server, for one agent. What it does is the server's to know, so it may do anything."""

    listed: ListedTool
    caller: McpClient

    input_type: ClassVar = ExternalInput
    access: ClassVar[Access] = "run"
    is_clearable: ClassVar = False
    result_cap: ClassVar[int | None] = RESULT_CAP

    @property
    def name(self) -> str:
        """With its server's."""
        return self.listed.name

    @property
    def description(self) -> str:
        """The server's words."""
        return self.listed.description

    @property
    def schema(self) -> msgspec.Raw:
        """As `ExternalTool.schema`."""
        return self.listed.schema

    def paths_affected(self, _arguments: ExternalInput, _workspace: Workspace) -> tuple[Path, ...]:
        """Nobody knows."""
        return ()

    async def run(self, arguments: ExternalInput, _workspace: Workspace) -> ToolResult:
        """What the server answers; what it calls an error is one."""
        answer = await self.caller.call(self.listed.server, self.listed.tool, arguments.values)
        if answer.is_error:  # the API takes no images in what is an error
            return ToolResult(text=answer.text, is_error=True)
        shown = [_shown(picture, number) for number, picture in enumerate(answer.pictures[:PICTURES], 1)]
        words = [answer.text, *(text for text, _ in shown)]
        if len(answer.pictures) > PICTURES:
            words.append(f"[{len(answer.pictures) - PICTURES} more images are left out]")
        return ToolResult(
            text="\n".join(filter(None, words)), images=tuple(image for _, image in shown if image is not None)
        )


def mcp_tools(listed: Sequence[ListedTool], caller: McpClient) -> Mapping[str, McpTool]:
    """The tools of a session's servers for one agent, in the order of a request."""
    return {each.name: McpTool(listed=each, caller=caller) for each in listed}


def _shown(picture: ToolImage, number: int) -> tuple[str, Image | None]:
    """What is said of an image, and the image if the model can be shown it."""
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

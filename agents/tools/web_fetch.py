"""The WebFetch tool: a page of a host that the user has listed, as text."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.schema import described
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description
from coterie.agents.web.cache import PageCache
from coterie.agents.web.hosts import Hosts, WebAddress

NAME = "WebFetch"


@attrs.frozen(kw_only=True)
class WebFetchInput:
    """Which page."""

    url: str = attrs.field(metadata=described("The page's full address, such as https://docs.python.org/3/."))


Load = Callable[[WebAddress, tuple[Hosts, ...]], Awaitable[str]]
"""Gives what stands at an address, in words for the model. Raises `ToolFailed`."""


@attrs.frozen(kw_only=True, eq=False)
class WebFetch:
    """Fetches pages of listed hosts."""

    name: ClassVar = NAME
    description: ClassVar = tool_description("web_fetch")
    input_type: ClassVar = WebFetchInput
    access: ClassVar[Access] = "read"
    is_clearable: ClassVar = True
    result_cap: ClassVar[int | None] = RESULT_CAP

    hosts: tuple[Hosts, ...]
    """The lists of the agent and of those above it: a host must be on each."""
    cache: PageCache
    load: Load

    def touches(self, _arguments: WebFetchInput, _workspace: Workspace) -> list[Path]:
        """No file."""
        return []

    async def run(self, arguments: WebFetchInput, _workspace: Workspace) -> ToolResult:
        """The page. Raises `ToolFailed`; when cancelled, the connection is closed."""
        address = WebAddress.parse(arguments.url.partition("#")[0])
        if refusing := next((hosts for hosts in self.hosts if not hosts.allows(address)), None):
            raise ToolFailed(
                f"{address.netloc} is not among the hosts that may be asked: {refusing}. The user could add it to "
                "web.hosts."
            )
        url = str(address)
        if (text := self.cache.find(url)) is None:
            text = await self.load(address, self.hosts)
            self.cache.keep(url, text)
        return ToolResult(text=text)

"""The WebFetch tool, and its cache of pages."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.schema import described
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description
from coterie.agents.tools.web.hosts import HostList, WebAddress

LASTS = 15 * 60.0
"""Seconds for which a page is not fetched again."""
MOST = 50
LARGEST = 20_000_000
"""Characters of all pages together."""


@attrs.define(eq=False)
class PageCache:
    """The last pages of one agent, by their address. Belongs to the task that runs its tools."""

    _now: Callable[[], float]
    _pages: dict[str, tuple[float, str]] = attrs.field(factory=dict, init=False)

    def find(self, url: str) -> str | None:
        """The page as it was, if that is not long ago."""
        fetched, text = self._pages.get(url, (0.0, ""))
        return text if 0 <= self._now() - fetched < LASTS and url in self._pages else None

    def store(self, url: str, text: str) -> None:
        """Remember the page; the oldest are forgotten when there are too many."""
        self._pages.pop(url, None)
        self._pages[url] = (self._now(), text)
        while len(self._pages) > MOST or sum(len(text) for _, text in self._pages.values()) > LARGEST:
            self._pages.pop(next(iter(self._pages)))


NAME = "WebFetch"


@attrs.frozen(kw_only=True)
class WebFetchInput:
    """Which page."""

    url: str = attrs.field(metadata=described("The page's full address, such as https://docs.python.org/3/."))


Load = Callable[[WebAddress, tuple[HostList, ...]], Awaitable[str]]
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

    hosts: tuple[HostList, ...]
    """The lists of the agent and of those above it: a host must be on each."""
    cache: PageCache
    load: Load

    def paths_affected(self, _arguments: WebFetchInput, _workspace: Workspace) -> list[Path]:
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
            self.cache.store(url, text)
        return ToolResult(text=text)

"""The WebFetch tool, which returns the text of a web page, and the cache of fetched pages."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.tool import BuiltInTool, ToolResult, Workspace
from coterie.agents.tools.web.hosts import HostList, WebAddress

CACHE_SECONDS = 15 * 60.0
"""Seconds for which a fetched page is returned from the cache instead of being fetched again."""
MAX_PAGES = 50
MAX_CHARACTERS = 20_000_000
"""Maximum characters of all cached pages together."""
Load = Callable[[WebAddress, tuple[HostList, ...]], Awaitable[str]]
"""Function that fetches a page from one of the allowed hosts and returns its text. Raises `ToolFailed`."""


@attrs.define(eq=False)
class PageCache:
    """Cache of the texts of the pages that one agent has fetched, by URL. Used only in the thread of its event loop."""

    _now: Callable[[], float]
    _pages: dict[str, tuple[float, str]] = attrs.field(factory=dict, init=False)

    def find(self, url: str) -> str | None:
        """Return the cached text of the page *url*; None if it is not cached or older than CACHE_SECONDS."""
        fetched, text = self._pages.get(url, (0.0, ""))
        return text if 0 <= self._now() - fetched < CACHE_SECONDS and url in self._pages else None

    def store(self, url: str, text: str) -> None:
        """Store *text* as the text of the page *url*, fetched now; remove the oldest pages if the cache is full."""
        self._pages.pop(url, None)
        self._pages[url] = (self._now(), text)
        while len(self._pages) > MAX_PAGES or sum(len(text) for _, text in self._pages.values()) > MAX_CHARACTERS:
            self._pages.pop(next(iter(self._pages)))


@attrs.frozen(kw_only=True)
class WebFetchInput:
    """Arguments of a call of the WebFetch tool, which returns the text of a web page."""

    url: Annotated[str, "The full URL of the page, such as https://docs.python.org/3/."]


@attrs.frozen(kw_only=True, eq=False)
class WebFetch(BuiltInTool, name="WebFetch", input_type=WebFetchInput, access="read", is_clearable=True):
    """Tool with which the model fetches web pages from the hosts that the user allows."""

    hosts: tuple[HostList, ...]
    """Lists of allowed hosts, of the agent and of each agent above it; a host must be on every list."""
    cache: PageCache
    load: Load

    async def run(self, arguments: WebFetchInput, _workspace: Workspace) -> ToolResult:
        """Return the text of the page, from the cache or web. Raises `ToolFailed`, also if the host is not allowed."""
        address = WebAddress.parse(arguments.url.partition("#")[0])
        if refusing := next((hosts for hosts in self.hosts if not hosts.allows(address)), None):
            problem = f"{address.netloc} is not among the allowed hosts: {refusing}"
            raise ToolFailed(f"{problem}. Ask the user to add it to the setting web.hosts.")
        url = str(address)
        if (text := self.cache.find(url)) is None:
            text = await self.load(address, self.hosts)
            self.cache.store(url, text)
        return ToolResult(text=text)

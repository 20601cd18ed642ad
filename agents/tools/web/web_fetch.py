"""The WebFetch tool, and its page cache."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.tool import BuiltInTool, ToolResult, Workspace
from coterie.agents.tools.web.hosts import HostList, WebAddress

CACHE_SECONDS = 15 * 60.0
"""Seconds for which a page is served from the cache."""
MAX_PAGES = 50
MAX_CHARACTERS = 20_000_000
"""Maximum characters of all cached pages together."""
Load = Callable[[WebAddress, tuple[HostList, ...]], Awaitable[str]]
"""Function that fetches a page and returns its text for the model. Raises `ToolFailed`."""


@attrs.define(eq=False)
class PageCache:
    """Cache of the pages that one agent has fetched, by URL. Owned by the task that runs the agent's tools."""

    _now: Callable[[], float]
    _pages: dict[str, tuple[float, str]] = attrs.field(factory=dict, init=False)

    def find(self, url: str) -> str | None:
        """Return the cached page; None if it is not cached or too old."""
        fetched, text = self._pages.get(url, (0.0, ""))
        return text if 0 <= self._now() - fetched < CACHE_SECONDS and url in self._pages else None

    def store(self, url: str, text: str) -> None:
        """Cache a page; the oldest pages are removed if the cache is full."""
        self._pages.pop(url, None)
        self._pages[url] = (self._now(), text)
        while len(self._pages) > MAX_PAGES or sum(len(text) for _, text in self._pages.values()) > MAX_CHARACTERS:
            self._pages.pop(next(iter(self._pages)))


@attrs.frozen(kw_only=True)
class WebFetchInput:
    """Arguments of the WebFetch tool."""

    url: Annotated[str, "The full URL of the page, such as https://docs.python.org/3/."]


@attrs.frozen(kw_only=True, eq=False)
class WebFetch(BuiltInTool, name="WebFetch", input_type=WebFetchInput, access="read", is_clearable=True):
    """Tool that fetches pages of allowed hosts."""

    hosts: tuple[HostList, ...]
    """Host lists of the agent and its ancestors; a host must be on each of them."""
    cache: PageCache
    load: Load

    async def run(self, arguments: WebFetchInput, _workspace: Workspace) -> ToolResult:
        """Return the text of the page. Raises `ToolFailed`; cancellation closes the connection."""
        address = WebAddress.parse(arguments.url.partition("#")[0])
        if refusing := next((hosts for hosts in self.hosts if not hosts.allows(address)), None):
            problem = f"{address.netloc} is not among the allowed hosts: {refusing}"
            raise ToolFailed(f"{problem}. The user can add it to web.hosts.")
        url = str(address)
        if (text := self.cache.find(url)) is None:
            text = await self.load(address, self.hosts)
            self.cache.store(url, text)
        return ToolResult(text=text)

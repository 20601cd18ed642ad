"""Pages that were fetched a short while ago."""

from collections.abc import Callable

import attrs

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

    def keep(self, url: str, text: str) -> None:
        """Remember the page; the oldest are forgotten when there are too many."""
        self._pages.pop(url, None)
        self._pages[url] = (self._now(), text)
        while len(self._pages) > MOST or sum(len(text) for _, text in self._pages.values()) > LARGEST:
            self._pages.pop(next(iter(self._pages)))

"""Parser of report pages: elements, texts and content policy."""

import base64
import hashlib
from html.parser import HTMLParser

_VOID = frozenset({"br", "col", "input", "meta"})


class Page(HTMLParser):
    """A page, read; every element of it must be closed as it was opened."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.content = page.decode()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._words: dict[str, list[str]] = {}  # by the id of their section; the empty id is outside of sections
        self._open: list[str] = []
        self._section = ""
        self.feed(self.content)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        found = dict(attrs)
        assert len(found) == len(attrs), f"twice the same attribute: {attrs}"
        self.elements.append((tag, found))
        if tag == "section":
            self._section = str(found["id"])
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """An element ends."""
        assert self._open.pop() == tag
        if tag == "section":
            self._section = ""

    def handle_data(self, data: str) -> None:
        self._words.setdefault(self._section, []).append(data)

    def text(self, section: str = "") -> str:
        return " ".join(" ".join(self._words.get(section, ())).split())

    def shapes(self) -> set[tuple[str, frozenset[str]]]:
        """Elements with the names of their attributes."""
        return {(tag, frozenset(found)) for tag, found in self.elements}

    @property
    def policy(self) -> dict[str, list[str]]:
        """The content security policy."""
        [policy] = [found["content"] for _, found in self.elements if "http-equiv" in found]
        parts = [part.split() for part in str(policy).split(";")]
        return {name: sources for name, *sources in parts}

    def inside(self, tag: str) -> str:
        """Unparsed content of the only element with this tag."""
        _, rest = self.content.split(f"<{tag}>")
        return rest.split(f"</{tag}>")[0]


def source_of(content: str) -> str:
    """Source expression by which a policy allows *content*."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

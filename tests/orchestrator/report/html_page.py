"""Parser of report pages: elements, texts and content policy."""

import base64
import hashlib
from html.parser import HTMLParser

import attrs

_VOID = frozenset({"br", "col", "input", "meta"})


@attrs.define(eq=False)
class Page(HTMLParser):
    """A page, read."""

    content: str
    elements: list[tuple[str, dict[str, str | None]]] = attrs.field(factory=list, init=False)
    words: dict[str, list[str]] = attrs.field(factory=dict, init=False)
    """Pieces of text by the id of their section; the empty id holds text outside of sections."""
    _open: list[str] = attrs.field(factory=list, init=False)
    _section: str = attrs.field(default="", init=False)

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    @classmethod
    def of(cls, page: bytes) -> "Page":
        """Read *page*; every element of it must be closed as it was opened."""
        read = cls(page.decode())
        read.feed(read.content)
        read.close()
        assert read._open == []
        return read

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
        """Words."""
        self.words.setdefault(self._section, []).append(data)

    def text(self, section: str = "") -> str:
        """Text of a section, or of the whole page."""
        return " ".join(" ".join(self.words.get(section, ())).split())

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

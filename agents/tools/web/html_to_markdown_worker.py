"""Worker process of the WebFetch tool that converts an HTML page to Markdown.

Reads the URL from the first line of standard input and the page from the rest, and prints Markdown. Imports only the
standard library. It is a process, which can be killed, because a malicious page can keep the parser busy for long.
"""

import contextlib
import itertools
import re
import signal
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import urljoin

LIFETIME = 60
"""Seconds after which SIGALRM kills the worker process, in case the agent process that started it has died."""
DROPPED = frozenset(
    {"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "canvas", "select", "head"}
)
VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "area", "base", "col", "embed"})
HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
BLOCKS = frozenset(
    {
        *("p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "form", "fieldset", "figure"),
        *("figcaption", "address", "details", "summary", "dl", "dt", "dd", "body", "html", "caption", "center"),
        *HEADINGS,
    }
)
NESTED = frozenset({"ul", "ol", "li", "blockquote", "pre", "table"})
CODE = frozenset({"code", "kbd", "samp", "tt"})
MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "del": "~~", "s": "~~"}
MAX_DEPTH = 12
"""Maximum nesting depth of lists and quotes that the Markdown shows by indentation and `>`."""


def to_markdown(html: str, url: str) -> str:
    """Return the HTML page *html* as Markdown with headings, links, lists, code and tables; *url* is its address."""
    converter = _Converter(url)
    converter.feed(html)
    converter.close()
    return converter.finish()


class _Converter(HTMLParser):
    """HTML parser that converts the elements of a page to Markdown blocks (paragraphs, list items, tables) in order."""

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._blocks: list[str] = []
        self._text: list[str] = []
        self._heading = ""
        self._title: list[str] | None = None
        self._dropping: list[str] = []
        self._open: list[str] = []
        self._bullets: list[Iterator[str]] = []
        self._bullet: str | None = None
        self._links: list[tuple[str, int]] = []
        self._rows: list[list[str]] = []
        self._marked: list[str] = []

    def finish(self) -> str:
        """End all elements that the page has not closed, and return the whole Markdown text."""
        while self._open:
            self._leave(self._open[-1])
        self._end_block()
        text = "\n".join(self._blocks)
        return re.sub(r"\n{3,}", "\n\n", text).strip()

    def handle_starttag(self, tag: str, attrs: "list[tuple[str, str | None]]") -> None:
        if tag == "title" and not self._blocks and self._title is None:
            self._title = []
            return
        if self._dropping or tag in DROPPED:
            if tag not in VOID and tag in DROPPED:
                self._dropping.append(tag)
            if tag != "body":
                return
            self._dropping.clear()  # the head element was not closed
        given = {name: value or "" for name, value in attrs}
        if tag in NESTED:
            self._enter(tag, given)
        elif tag in ("tr", "td", "th"):
            self._begin_cell(tag)
        elif tag in BLOCKS:
            self._end_block()
            self._heading = HEADINGS.get(tag, "")
        else:
            self._begin_inline(tag, given)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title" and self._title is not None:
            self._heading, self._text, self._title = "# ", self._title, None
            self._end_block()
        elif self._dropping:
            if tag in self._dropping:
                del self._dropping[self._dropping.index(tag) :]
        else:
            self._end_tag(tag)

    def _end_tag(self, tag: str) -> None:
        if tag in NESTED:
            if tag in self._open:
                while self._leave(self._open[-1]) != tag:
                    pass
        elif tag in ("td", "th"):
            self._end_cell()
        elif tag in BLOCKS:
            self._end_block()
        elif tag == "a" and self._links:
            self._end_link()
        elif tag in self._marked:
            self._marked.remove(tag)
            self._text.append(MARKS[tag])
        elif tag in CODE and not self._is_in("pre"):
            self._text.append("`")

    def handle_data(self, data: str) -> None:
        if self._title is not None:
            self._title.append(data)
        elif not self._dropping:
            self._text.append(data)

    def _begin_inline(self, tag: str, given: "dict[str, str]") -> None:
        if tag == "br":
            self._text.append("\n" if self._is_in("pre") else "\0")
        elif tag == "hr":
            self._end_block()
            self._blocks += ["---", ""]
        elif tag == "img" and given.get("alt", "").strip():
            self._text.append(f"[image: {given['alt'].strip()}]")
        elif tag == "a":
            self._links.append((given.get("href", ""), len(self._text)))
        elif tag in MARKS:
            self._marked.append(tag)
            self._text.append(MARKS[tag])
        elif tag in CODE and not self._is_in("pre"):
            self._text.append("`")

    def _end_link(self) -> None:
        target, start = self._links.pop()
        label = " ".join("".join(self._text[start:]).replace("\0", " ").split())
        if not label or self._is_in("pre"):
            return
        target = target.strip()
        is_link = target and not target.startswith(("#", "javascript:", "data:"))
        with contextlib.suppress(ValueError):  # an invalid URL is shown as it is
            target = urljoin(self._url, target)
        self._text[start:] = [f" [{label}]({target})" if is_link else f" {label}"]

    def _enter(self, tag: str, given: "dict[str, str]") -> None:
        if tag == "li" and next((each for each in reversed(self._open) if each in ("li", "ul", "ol")), None) == "li":
            while self._leave(self._open[-1]) != "li":
                pass
        self._end_block()
        if tag == "ul":
            self._bullets.append(itertools.repeat("- "))
        elif tag == "ol":
            start = given.get("start", "")
            numbers = itertools.count(int(start) if start.isdecimal() and len(start) < 6 else 1)
            self._bullets.append(map("{}. ".format, numbers))
        elif tag == "li":
            self._bullet = next(self._bullets[-1]) if self._bullets else "- "
        elif tag == "table":
            self._rows = []
        self._open.append(tag)

    def _leave(self, tag: str) -> str:
        """End the innermost open element, whose tag is *tag*: write its last block. Return *tag*."""
        if tag == "table":
            self._end_cell()
            self._end_table()
        else:
            self._end_block()
        self._open.pop()
        if tag in ("ul", "ol"):
            self._bullets.pop()
            if not self._is_in("ul", "ol"):
                self._blocks.append("")
        return tag

    def _begin_cell(self, tag: str) -> None:
        if not self._is_in("table"):
            self._end_block()
            return
        self._end_cell()
        if tag == "tr" or not self._rows:
            self._rows.append([])
        if tag != "tr":
            self._rows[-1].append("")

    def _end_cell(self) -> None:
        if self._is_in("table") and self._rows and self._rows[-1]:
            text = " ".join("".join(self._text).replace("\0", " ").split()).replace("|", "\\|")
            self._rows[-1][-1] = f"{self._rows[-1][-1]} {text}".strip()
            self._text.clear()
            self._links.clear()
        else:
            self._end_block()

    def _end_table(self) -> None:
        rows = [row for row in self._rows if any(row)]
        width = max(map(len, rows), default=0)
        self._rows = []
        if width == 1:  # a layout table
            self._blocks += [line for (cell,) in rows for line in (cell, "")]
            return
        lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in rows]
        if lines:
            self._blocks += [lines[0], f"|{'---|' * width}", *lines[1:], ""]

    def _end_block(self) -> None:
        if self._is_in("table") and self._rows and self._rows[-1]:
            self._text.append(" ")
            return
        text = "".join(self._text)
        self._text.clear()
        self._links.clear()
        heading, self._heading = self._heading, ""
        if self._is_in("pre"):
            lines = text.strip("\n").split("\n") if text.strip() else []
            lines = ["```", *lines, "```"] if lines else []
        else:
            lines = [" ".join(line.split()) for line in text.split("\0")]
            lines = [line for line in lines if line]
        if not lines:
            return
        first, rest = self._margins()
        self._blocks += [f"{first}{heading}{lines[0]}", *(f"{rest}{line}".rstrip() for line in lines[1:])]
        if not self._is_in("ul", "ol"):
            self._blocks.append("")

    def _margins(self) -> "tuple[str, str]":
        """Return the prefix of the first line of a block, such as `> - `, and the prefix of its other lines."""
        inner = self._open[:MAX_DEPTH]
        quotes = "> " * inner.count("blockquote")
        indent = "  " * max(0, inner.count("li") - 1)
        if not self._is_in("li"):
            return quotes, quotes
        bullet, self._bullet = self._bullet, None
        return f"{quotes}{indent}{bullet or '  '}", f"{quotes}{indent}  "

    def _is_in(self, *tags: str) -> bool:
        return any(tag in self._open for tag in tags)


if __name__ == "__main__":
    signal.alarm(LIFETIME)
    address, _, page = sys.stdin.buffer.read().decode(errors="replace").partition("\n")
    sys.stdout.buffer.write(to_markdown(page, address).encode(errors="replace"))

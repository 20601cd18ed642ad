"""Builder of HTML for the report. It escapes all texts and attributes, so a session's content cannot become markup."""

from collections.abc import Iterable
from html import escape
from typing import NewType

from coterie.orchestrator.cli.output import one_line, sanitize

Html = NewType("Html", str)
"""Piece of HTML in which all texts are escaped. Only functions of this module create values of this type."""

Child = Html | Iterable[Html] | None

TIP = 240
"""Maximum characters of one line of a tooltip."""
LINE = 400
"""Maximum characters of a text that is shown on one line, such as a task, a reason or a name."""
ENOUGH = 20
"""Number of characters that `truncate` reads for each character of its limit, because it may drop most of them."""
DEEPEST = 6
"""Maximum depth in the tree of agents up to which names are indented; deeper agents are indented like this depth."""
_VOID = frozenset({"br", "col", "input", "meta"})


def text(words: str) -> Html:
    """Return *words* as HTML: markup is escaped; control characters and bidirectional marks are removed."""
    return Html(escape(_clean(words)))


def line(words: str, limit: int = LINE) -> Html:
    """Return *words* as HTML on one line: escaped, sanitized and cut to *limit* characters."""
    return text(truncate(words, limit))


def truncate(words: str, limit: int) -> str:
    """Return *words* on one line, sanitized and cut to *limit* characters; fast also for a very long text."""
    return one_line(words[: ENOUGH * limit], limit)


def tag(_name: str, *children: Child, **attributes: str | float | bool | None) -> Html:
    """Render element *_name*. Attribute `class_` is written as `class`, `a_b` as `a-b`; None and False are left out."""
    listed = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if _name in _VOID:
        return Html(f"<{_name}{listed}>")
    return Html(f"<{_name}{listed}>{join(children)}</{_name}>")


def join(children: Iterable[Child]) -> Html:
    """Concatenate pieces of HTML, and iterables of pieces, to one piece; None is skipped."""
    return Html("".join(child if isinstance(child, str) else "".join(child) for child in children if child is not None))


def tooltip(*lines: str) -> Html:
    """Render a tooltip for the SVG shape that contains it, from the strings in *lines* that are not empty."""
    return tag("title", text("\n".join(truncate(each, TIP) for each in lines if each)))


def table(head: Iterable[str], rows: Iterable[Html], *, numbers: int = 0, class_: str | None = None) -> Html:
    """Render a table with column titles *head*, the last *numbers* right-aligned; it scrolls if it is too wide."""
    names = list(head)
    cells = [
        tag("th", text(name), scope="col", class_="number" if at >= len(names) - numbers else None)
        for at, name in enumerate(names)
    ]
    content = tag("table", tag("thead", tag("tr", cells)), tag("tbody", rows), class_=class_)
    return tag("div", content, class_="scrolls", tabindex=0)


def agent_name(words: str, depth: int = 0) -> Html:
    """Render an agent's name, indented by *depth* in the tree of agents, with a tooltip of up to `TIP` characters."""
    return tag("span", line(words), class_=f"name d{min(depth, DEEPEST)}", title=truncate(words, TIP))


def indented(depth: int, *children: Child) -> Html:
    """Render *children* as a block below an agent's name, indented like the name by *depth* in the tree of agents."""
    return tag("div", *children, class_=f"below d{min(depth, DEEPEST)}")


def note(words: str) -> Html:
    """Render a paragraph that explains a section, or the reason why the section is empty."""
    return tag("p", text(words), class_="note")


def row(*cells: Html, **attributes: str | float | None) -> Html:
    """Render a table row from *cells*, which were rendered by `cell` or `number`."""
    return tag("tr", cells, **attributes)


def cell(*children: Child, **attributes: str | float | None) -> Html:
    """Render a table cell with *children* as its content."""
    return tag("td", *children, **attributes)


def number(value: int | str) -> Html:
    """Render a right-aligned table cell; an integer gets thousands separators, a string is only escaped."""
    return tag("td", text(f"{value:,}" if isinstance(value, int) else value), class_="number")


def _attribute(key: str, value: str | float | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    if value is False:
        return ""
    shown = f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {name}="{escape(_clean(shown))}"'


def _clean(words: str) -> str:
    # Fast path: most of a page is numbers, which need no cleaning.
    return words if words.isascii() and words.isprintable() else sanitize(words)

"""HTML builder that is safe by construction: text is escaped in one place."""

from collections.abc import Iterable
from html import escape
from typing import NewType

from coterie.orchestrator.cli.output import one_line, sanitize

Html = NewType("Html", str)
"""Escaped markup; only this module creates it."""

Child = Html | Iterable[Html] | None

TIP = 240
"""Characters of one line of a tooltip."""
LINE = 400
"""Characters of one line: a task, a reason, a name."""
ENOUGH = 20
"""Characters read for each one shown, because many may be spaces or control characters."""
DEEPEST = 6
"""Depth from which on names are not indented further."""
_VOID = frozenset({"br", "col", "input", "meta"})


def text(words: str) -> Html:
    """Escape *words*: no markup, control characters or bidirectional marks remain."""
    return Html(escape(_clean(words)))


def line(words: str, limit: int = LINE) -> Html:
    """Escape the beginning of *words* on one line."""
    return text(truncate(words, limit))


def truncate(words: str, limit: int) -> str:
    """Shorten to one line like `one_line`, but fast for a very long text."""
    return one_line(words[: ENOUGH * limit], limit)


def tag(_name: str, *children: Child, **attributes: str | float | bool | None) -> Html:
    """Render an element. `class_` means `class`, `_` in a name means `-`, None and False leave an attribute out."""
    listed = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if _name in _VOID:
        return Html(f"<{_name}{listed}>")
    return Html(f"<{_name}{listed}>{join(children)}</{_name}>")


def join(children: Iterable[Child]) -> Html:
    """Concatenate pieces of markup."""
    return Html("".join(child if isinstance(child, str) else "".join(child) for child in children if child is not None))


def tooltip(*lines: str) -> Html:
    """Tooltip of an SVG element."""
    return tag("title", text("\n".join(truncate(each, TIP) for each in lines if each)))


def table(head: Iterable[str], rows: Iterable[Html], *, numbers: int = 0, class_: str | None = None) -> Html:
    """Render a table that scrolls horizontally if it is too wide; the last *numbers* columns are numeric."""
    names = list(head)
    cells = [
        tag("th", text(name), scope="col", class_="number" if at >= len(names) - numbers else None)
        for at, name in enumerate(names)
    ]
    content = tag("table", tag("thead", tag("tr", cells)), tag("tbody", rows), class_=class_)
    return tag("div", content, class_="scrolls", tabindex=0)


def agent_name(words: str, depth: int = 0) -> Html:
    """Name of an agent, indented by its depth, with the full name as tooltip."""
    return tag("span", line(words), class_=f"name d{min(depth, DEEPEST)}", title=truncate(words, TIP))


def indented(depth: int, *children: Child) -> Html:
    """Content below the name of an agent, indented by its depth."""
    return tag("div", *children, class_=f"below d{min(depth, DEEPEST)}")


def note(words: str) -> Html:
    """Paragraph that explains a section or says why it is empty."""
    return tag("p", text(words), class_="note")


def row(*cells: Html, **attributes: str | float | None) -> Html:
    """Table row of cells made by `cell` and `number`."""
    return tag("tr", cells, **attributes)


def cell(*children: Child, **attributes: str | float | None) -> Html:
    """Table cell with text."""
    return tag("td", *children, **attributes)


def number(value: int | str) -> Html:
    """Table cell with a number."""
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

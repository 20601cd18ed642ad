"""HTML builder that is safe by construction: text is escaped in one place."""

from collections.abc import Iterable
from html import escape
from typing import NewType

from coterie.orchestrator.cli.output import one_line, sanitize

Html = NewType("Html", str)
"""Markup. Only this module makes it of text."""

Child = Html | Iterable[Html] | None

TIP = 240
"""Characters of a line of what is shown when one points at something."""
LINE = 400
"""Characters of what is told in one line: a task, a reason, a name."""
ENOUGH = 20
"""Times as much of a text is looked at as is shown of it: the rest could be blanks, and what terminals act on."""
DEEPEST = 6
"""From there on what stands below something else is not indented any further."""
_VOID = frozenset({"br", "col", "input", "meta"})


def text(words: str) -> Html:
    """*words* as they are to be read: nothing in them is markup, acts on a terminal, or reorders what is seen."""
    return Html(escape(_clean(words)))


def line(words: str, limit: int = LINE) -> Html:
    """The beginning of *words*, on one line."""
    return text(truncate(words, limit))


def truncate(words: str, limit: int) -> str:
    """As `one_line`, and as quick for a text without an end."""
    return one_line(words[: ENOUGH * limit], limit)


def tag(_name: str, *children: Child, **attributes: str | float | bool | None) -> Html:
    """An element. Attributes are text: `class_` is `class`, an underscore a hyphen, None and False leave one out."""
    listed = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if _name in _VOID:
        return Html(f"<{_name}{listed}>")
    return Html(f"<{_name}{listed}>{join(children)}</{_name}>")


def join(children: Iterable[Child]) -> Html:
    """Pieces one after another."""
    return Html("".join(child if isinstance(child, str) else "".join(child) for child in children if child is not None))


def tooltip(*lines: str) -> Html:
    """The title of an SVG element: what is shown when one points at it."""
    return tag("title", text("\n".join(truncate(each, TIP) for each in lines if each)))


def table(head: Iterable[str], rows: Iterable[Html], *, numbers: int = 0, class_: str | None = None) -> Html:
    """A table that scrolls by itself where there is no room; the last *numbers* columns of its head are numbers."""
    names = list(head)
    cells = [
        tag("th", text(name), scope="col", class_="number" if at >= len(names) - numbers else None)
        for at, name in enumerate(names)
    ]
    content = tag("table", tag("thead", tag("tr", cells)), tag("tbody", rows), class_=class_)
    return tag("div", content, class_="scrolls", tabindex=0)


def agent_name(words: str, depth: int = 0) -> Html:
    """The name of an agent, indented as far as it stands below the first one; all of it where there is room."""
    return tag("span", line(words), class_=f"name d{min(depth, DEEPEST)}", title=truncate(words, TIP))


def indented(depth: int, *children: Child) -> Html:
    """What is said of an agent, below its `name`."""
    return tag("div", *children, class_=f"below d{min(depth, DEEPEST)}")


def note(words: str) -> Html:
    """A sentence about what is shown, or why nothing is."""
    return tag("p", text(words), class_="note")


def row(*cells: Html, **attributes: str | float | None) -> Html:
    """A row of a table, of cells made by `cell` and `number`."""
    return tag("tr", cells, **attributes)


def cell(*children: Child, **attributes: str | float | None) -> Html:
    """A cell with words."""
    return tag("td", *children, **attributes)


def number(value: int | str) -> Html:
    """A cell with a number."""
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
    # Most of a page is numbers and places, which need no look at every character.
    return words if words.isascii() and words.isprintable() else sanitize(words)

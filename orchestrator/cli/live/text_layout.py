"""Text layout of the board (live display of a session): lines cut or padded to a width, and sections of rows."""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal

import attrs
from rich.cells import cell_len, set_cell_size
from rich.text import Text

_HIDDEN = re.compile("[^ -~]")
UNITS = ((1_000_000, "M"), (1_000, "k"))


def cut(text: Text | str, width: int, style: str = "") -> Text:
    """Return *text* as a line that never wraps, cut to *width* columns and in *style*; changes a `Text` in place."""
    line = text if isinstance(text, Text) else Text(text)
    fit(line, width)
    line.no_wrap, line.end = True, "\n"
    if style:
        line.stylize(style)
    return line


def fit(line: Text, width: int) -> None:
    """Cut *line*, in place, to at most *width* columns with an ellipsis at its end; to nothing if *width* is 0."""
    if width > 0:
        line.truncate(width, overflow="ellipsis")
    else:
        line.plain = ""  # rich would leave a column for the ellipsis


def visible(line: Text) -> Text:
    """Return *line* with `?` for each unprintable character, so that no escape sequence reaches the terminal."""
    if not line.plain.isprintable():
        line = line.copy()
        line.plain = _HIDDEN.sub(lambda found: found[0] if found[0].isprintable() else "?", line.plain)
    return line


def cell(text: str, width: int) -> str:
    """Return *text*, padded with spaces or cut, so that it fills exactly *width* terminal columns."""
    return set_cell_size(text, max(width, 0))


def fit_end(text: str, width: int) -> str:
    """Return the last characters of *text* that fit into *width* columns, to show the end of a long input."""
    room = max(width, 0)
    tail = text[len(text) - room :] if len(text) > room else text
    while cell_len(tail) > room:
        tail = tail[1:]
    return tail


def justify(left: Text, right: Text, width: int) -> Text:
    """Return a line of *width* columns: *left*, spaces, *right*. If too long, *left* is cut first, then *right*."""
    line = left.copy()
    fit(line, width - right.cell_len - 2)
    line.pad_right(max(width - line.cell_len - right.cell_len, 0))
    return cut(line.append_text(right), width)


def short_count(number: int) -> str:
    """Return *number* in at most six characters, such as `950`, `12.3k` or `4.5M`; empty for 0."""
    for size, unit in UNITS:
        if number >= size:
            return f"{number / size:.1f}{unit}" if number < 100 * size else f"{number // size}{unit}"
    return str(number) if number else ""


def dollars(amount: Decimal) -> str:
    """Return *amount* without a `$`: four decimals below 100, two below 1000, otherwise none, such as `1,234`."""
    places = 4 if amount < 100 else 2 if amount < 1000 else 0
    return f"{amount:,.{places}f}"


def age(seconds: float) -> str:
    """Return a duration in at most six characters: `12 s`, `3:05` (minutes and seconds), `2 h 15`, `11 h` or `4 d`."""
    whole = max(int(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    if whole < 36_000:
        return f"{whole // 3600} h {whole % 3600 // 60:02}"
    return f"{whole // 3600} h" if whole < 86_400 else f"{whole // 86_400} d"


@attrs.frozen(kw_only=True)
class Section:
    """Block of the board, such as all agents: a title line and rows. Only rows that fit on the screen are rendered."""

    title: Text
    count: int
    """Number of rows that the section has, visible or not."""
    row: Callable[[int], Text]
    """Function that renders the row with the given index, counted from 0."""
    ranks: Sequence[int] = ()
    """Priority of each row if not all fit, lowest number first; if empty, the last (newest) rows are shown."""
    more: int = 0
    """Number of rows older than the first one, which the board has dropped; the title counts them as earlier."""

    @property
    def wanted(self) -> int:
        """Number of lines needed to show the title and all rows; 0 if there is no row."""
        return self.count + 1 if self.count else 0

    def lines(self, count: int, width: int) -> list[Text]:
        """Render at most *count* lines: title, rows that fit, number of hidden rows; none if *count* is below 2."""
        room = count - 1
        if room <= 0 or not self.count:
            return []
        lines = self._wanted_most(room) if self.ranks else self._latest(room)
        return [cut(line, width) for line in lines]

    def _wanted_most(self, room: int) -> list[Text]:
        if self.count <= room:
            return [self.title, *map(self.row, range(self.count))]
        # With two lines, one row and the number of hidden rows are more useful than a title and one row.
        wanted = sorted(range(self.count), key=lambda at: (self.ranks[at], at))
        kept = sorted(wanted[: max(room - 1, 1)])
        rest = Text(f"    ... {self.count - len(kept)} more", "dim")
        return [*([self.title] if room > 1 else []), *map(self.row, kept), rest]

    def _latest(self, room: int) -> list[Text]:
        first = max(self.count - room, 0)
        earlier = f"  {first + self.more} earlier" if first + self.more else ""
        return [self.title.copy().append(earlier, "dim"), *map(self.row, range(first, self.count))]

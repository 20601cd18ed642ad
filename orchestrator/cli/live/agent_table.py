"""Table of the agents on the board (live display of a session): tree of names, state and activity, numbers."""

from collections.abc import Callable, Sequence

import attrs
from rich.cells import cell_len
from rich.text import Text

from coterie.orchestrator.cli.live.rows import INTERRUPTED, AgentRow
from coterie.orchestrator.cli.live.text_layout import age, cell, cut, dollars, fit, short_count

NARROWEST, SPACIOUS = 28, 40
"""Minimum width for state and activity; a number column that leaves less is omitted (SPACIOUS: for time in state)."""
NAME_WIDTHS = (10, 24)

ASKING = ("?", "bold magenta")
MARKS = {
    "starting": ("◌", "cyan"),
    "running": ("●", "green"),
    "waiting": ("◔", "yellow"),
    "idle": ("○", "dim"),
    "plan_pending": ASKING,
    "stopping": ("◍", "yellow"),
    "stalled": ("!", "bold red"),
    "done": ("✓", "dim green"),
    "failed": ("✗", "red"),
    "killed": ("✗", "red"),
    INTERRUPTED: ("✗", "yellow"),
}
"""Symbol and style for each agent state. The table shows the state's name too, so no information is only a color."""
PLAIN_MARKS = {"◌": ".", "●": "*", "◔": "~", "○": "o", "◍": "/", "✓": "+", "✗": "x"}
"""ASCII replacements of the symbols in `MARKS`, for terminals that cannot show Unicode."""


@attrs.frozen(kw_only=True)
class AgentColumn:
    """Column with one number for each agent, such as its cost; `value` renders it from agent and present time."""

    title: str
    width: int
    value: Callable[[AgentRow, float], str]
    leaves: int = NARROWEST
    """Minimum width that must remain for state and activity; otherwise this and later columns are left out."""


def _cache(row: AgentRow, _now: float) -> str:
    return f"{100 * row.spending.cached_share:.0f} %" if row.spending.usage.prompt else ""


COLUMNS = (
    AgentColumn(title="USD", width=8, value=lambda row, _: dollars(row.spending.cost) if row.spending.requests else ""),
    AgentColumn(title="TURNS", width=6, value=lambda row, _: str(row.turns or "")),
    AgentColumn(title="CACHE", width=6, value=_cache),
    AgentColumn(title="TOKENS", width=7, value=lambda row, _: short_count(row.spending.usage.total)),
    AgentColumn(
        title="FOR", width=7, value=lambda row, now: age(now - row.since) if row.since else "", leaves=SPACIOUS
    ),
)
"""Number columns, the most important first. Those that fit are drawn from right to left in this order."""


@attrs.frozen(kw_only=True)
class AgentTable:
    """Layout of the agent table for one terminal width: width of the names, and the number columns that fit."""

    width: int
    name_width: int
    columns: tuple[AgentColumn, ...]
    is_plain: bool
    now: float

    @classmethod
    def fitting(cls, rows: Sequence[tuple[int, AgentRow]], width: int, now: float, *, is_plain: bool) -> "AgentTable":
        """Compute the layout for a terminal of *width* columns and *rows* (agents with their depth in the tree)."""
        least, most = NAME_WIDTHS
        longest = max((2 * depth + cell_len(row.name) for depth, row in rows), default=0)
        name_width = min(max(longest, least), most, max(width // 4, least))
        room = width - name_width - 5
        columns: list[AgentColumn] = []
        for column in COLUMNS:
            room -= column.width
            if room < column.leaves:
                break
            columns.append(column)
        return cls(width=width, name_width=name_width, columns=tuple(columns[::-1]), is_plain=is_plain, now=now)

    def head(self) -> Text:
        """Render the line with the titles of the columns, such as AGENT, STATE and USD."""
        titles = "".join(column.title.rjust(column.width) for column in self.columns)
        left = f"    {cell('AGENT', self.name_width)} STATE"
        return cut(f"{cell(left, self.width - len(titles))}{titles}", self.width, "dim")

    def line(self, depth: int, row: AgentRow, *, is_chosen: bool, is_asking: bool = False) -> Text:
        """Render the line of one agent, indented by *depth*; if *is_asking*, with state `asks` (for an approval)."""
        mark, style = ASKING if is_asking else MARKS.get(row.state, ("·", ""))
        mark = PLAIN_MARKS.get(mark, mark) if self.is_plain else mark
        numbers = "".join(column.value(row, self.now).rjust(column.width) for column in self.columns)
        room = max(self.width - self.name_width - 5 - len(numbers), 0)
        line = Text("> " if is_chosen else "  ")
        line.append(f"{mark} ", style)
        name = Text("  " * depth + row.name, f"{'bold ' if is_chosen else ''}{row.color}".strip())
        name.truncate(self.name_width, overflow="ellipsis", pad=True)
        line.append_text(name)
        line.append(" ")
        state = "asks" if is_asking else row.state_text
        line.append_text(self._state(row, Text(f"{state:<8}", style), room))
        line.append(numbers, "dim" if row.has_ended else "")
        return cut(line, self.width)

    def _state(self, row: AgentRow, words: Text, room: int) -> Text:
        if row.activity:
            words.append(f" {row.activity}")
        if row.call and row.call != row.activity and room > 2 * NARROWEST:
            words.append(f"  {row.call}", "dim")
        fit(words, room - 1)
        words.pad_right(max(room - words.cell_len, 0))
        return words

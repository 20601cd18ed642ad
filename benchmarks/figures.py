"""Results of benchmarks: figures with optional goals, as a table and as JSON."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import attrs

LABELS = {True: "met", False: "MISSED", None: ""}


@attrs.frozen(kw_only=True)
class Goal:
    """A limit that a figure should keep."""

    kind: Literal["at least", "at most"]
    limit: float

    def is_met_by(self, value: float) -> bool:
        """True if *value* keeps the limit, inclusive."""
        return value >= self.limit if self.kind == "at least" else value <= self.limit


@attrs.frozen(kw_only=True)
class Figure:
    """One measured value."""

    name: str
    value: float
    unit: str
    digits: int = 2
    """Number of decimals in the table."""
    goal: Goal | None = None

    @property
    def is_met(self) -> bool | None:
        """True if the goal was met; None without a goal."""
        return None if self.goal is None else self.goal.is_met_by(self.value)

    def to_mapping(self) -> dict[str, Any]:
        """Return the figure as JSON data."""
        goal = None if self.goal is None else attrs.asdict(self.goal)
        return {"name": self.name, "value": self.value, "unit": self.unit, "goal": goal, "met": self.is_met}


def at_least(limit: float) -> Goal:
    """Return a goal for a figure that should be high."""
    return Goal(kind="at least", limit=limit)


def at_most(limit: float) -> Goal:
    """Return a goal for a figure that should be low."""
    return Goal(kind="at most", limit=limit)


def rows(figures: Sequence[Figure]) -> Iterator[str]:
    """Return a line for each figure: name, value with unit, goal, and result."""
    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        value = f"{figure.value:>12,.{figure.digits}f} {figure.unit:<10}"
        goal = figure.goal
        limit = "" if goal is None else f"goal {goal.kind} {goal.limit:,.{figure.digits}f}"
        yield f"  {figure.name:<{width}} {value} {limit:<22} {LABELS[figure.is_met]}".rstrip()


def aligned(figures: Iterable[Figure], columns: Sequence[str]) -> Iterator[str]:
    """Return a line for each subject of figures named `subject: column`; other figures are skipped.

    Where a cell has several, they are named `subject: column, part`.
    """
    cells: dict[str, dict[str, str]] = {}
    for figure in figures:
        subject, colon, name = figure.name.partition(": ")
        if colon:
            row, column = cells.setdefault(subject, {}), name.partition(", ")[0]
            row[column] = f"{row.get(column, '')} {figure.value:,.{figure.digits}f}".strip()
    lines = [("", *columns), *((subject, *(row.get(c, "-") for c in columns)) for subject, row in cells.items())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *rest in lines:
        right = (f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))
        yield f"  {first:<{widths[0]}}  {'  '.join(right)}"


def missed(figures: Iterable[Figure]) -> Iterator[str]:
    """Return a line for each goal that was missed."""
    for figure in figures:
        if figure.is_met is False and figure.goal is not None:
            yield f"  MISSED  {figure.name}: {figure.value:,g}, goal {figure.goal.kind} {figure.goal.limit:,g}"

"""What a benchmark gives: figures, some with a goal, as a table for people and as JSON for programs."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import attrs

LABELS = {True: "met", False: "MISSED", None: ""}


@attrs.frozen(kw_only=True)
class Goal:
    """A limit that a figure should keep."""

    kind: Literal["at least", "at most"]
    limit: float

    def is_met_by(self, value: float) -> bool:
        """Whether *value* keeps the limit; the limit itself does."""
        return value >= self.limit if self.kind == "at least" else value <= self.limit


@attrs.frozen(kw_only=True)
class Figure:
    """One measured value."""

    name: str
    value: float
    unit: str
    digits: int = 2
    """Decimals shown to people."""
    goal: Goal | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the goal was met; None without one."""
        return None if self.goal is None else self.goal.is_met_by(self.value)

    def to_mapping(self) -> dict[str, Any]:
        """The figure as JSON shows it."""
        goal = None if self.goal is None else attrs.asdict(self.goal)
        return {"name": self.name, "value": self.value, "unit": self.unit, "goal": goal, "met": self.is_met}


def at_least(limit: float) -> Goal:
    """The goal of a figure that should be high."""
    return Goal(kind="at least", limit=limit)


def at_most(limit: float) -> Goal:
    """The goal of a figure that should be low."""
    return Goal(kind="at most", limit=limit)


def rows(figures: Sequence[Figure]) -> Iterator[str]:
    """One line a figure: name, value with unit, goal, and whether it was met."""
    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        value = f"{figure.value:>12,.{figure.digits}f} {figure.unit:<10}"
        goal = figure.goal
        limit = "" if goal is None else f"goal {goal.kind} {goal.limit:,.{figure.digits}f}"
        yield f"  {figure.name:<{width}} {value} {limit:<22} {LABELS[figure.is_met]}".rstrip()

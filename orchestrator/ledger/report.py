"""All that the ledger and the events of a session say about its money."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.events import BreakerTripped, CacheBroke
from coterie.orchestrator.events.reader import SessionReader
from coterie.orchestrator.events.sources import open_sources
from coterie.orchestrator.ledger.ledger import LEDGER, Damage, read_ledger
from coterie.orchestrator.ledger.sharing import Alternatives, alternatives
from coterie.orchestrator.ledger.spending import TURN, Grouping, Row, Spending, per_100_turns, rows, total


@attrs.frozen(kw_only=True)
class Break:
    """The prompt cache gave an agent less than before, and nobody had announced it."""

    at: float
    agent: str
    event: CacheBroke


@attrs.frozen(kw_only=True)
class Trip:
    """Summaries of an agent's conversation have failed so often that no model is asked for them any more."""

    at: float
    agent: str
    event: BreakerTripped


@attrs.frozen(kw_only=True)
class Report:
    """What a session has cost so far, and why."""

    by: Grouping
    rows: tuple[Row, ...]
    total: Spending
    alternatives: Alternatives
    turns: int
    """Whole replies to calls of that purpose."""
    per_100_turns: dict[str, float]
    """Calls of each other purpose."""
    breaks: tuple[Break, ...]
    trips: tuple[Trip, ...]
    damaged: tuple[Damage, ...]
    """Lines of the ledger that are missing in all of this."""

    def to_mapping(self) -> dict[str, Any]:
        """The report as JSON has it; dollars are exact decimal numbers in strings."""
        return {
            "by": self.by,
            "rows": [row_mapping(row, self.by) for row in self.rows],
            "total": spending_mapping(self.total),
            **{f"{name}_usd": format(cost, "f") for name, cost in attrs.asdict(self.alternatives).items()},
            "turns": self.turns,
            "per_100_turns": self.per_100_turns,
            "breaks": [_break(each) for each in self.breaks],
            "breaker_trips": [_trip(each) for each in self.trips],
            "damaged": [attrs.asdict(damage) for damage in self.damaged],
        }


def make_report(directory: Path, by: Grouping = "agent") -> Report:
    """Read the session in *directory*. Blocks on the disk; raises `OSError`, also if there is no ledger."""
    reading = read_ledger(directory / LEDGER)
    told = sorted(_told(directory), key=lambda each: each.at)
    return Report(
        by=by,
        rows=tuple(rows(reading.lines, by)),
        total=total(reading.lines),
        alternatives=alternatives(reading.lines),
        turns=sum(line.purpose == TURN and not line.is_estimated for line in reading.lines),
        per_100_turns=per_100_turns(reading.lines),
        breaks=tuple(each for each in told if isinstance(each, Break)),
        trips=tuple(each for each in told if isinstance(each, Trip)),
        damaged=reading.damaged,
    )


def _told(directory: Path) -> Iterator[Break | Trip]:
    for path in SessionReader(directory).agent_directories():
        # The transcript, by far the longer of the two, says nothing of either.
        told, _ = open_sources(path, session=directory.name)
        for arrival in told.read(told.lines.size()):
            match arrival.event.event:
                case CacheBroke() as event:
                    yield Break(at=arrival.event.at, agent=arrival.event.agent, event=event)
                case BreakerTripped() as event:
                    yield Trip(at=arrival.event.at, agent=arrival.event.agent, event=event)
                case _:
                    pass


def row_mapping(row: Row, by: Grouping) -> dict[str, Any]:
    """A row as JSON has it."""
    place = {"parent": row.parent, "depth": row.depth, "subtree_cost_usd": format(row.subtree, "f")}
    return {"name": row.name, **(place if by == "agent" else {}), **spending_mapping(row.spending)}


def spending_mapping(spending: Spending) -> dict[str, Any]:
    """What some requests come to, as JSON has it."""
    return {
        "requests": spending.requests,
        "usage": attrs.asdict(spending.usage),
        "cached_share": spending.cached_share,
        "missed": spending.missed,
        "cost_usd": format(spending.cost, "f"),
        "estimated": spending.estimated,
        "estimated_cost_usd": format(spending.estimated_cost, "f"),
    }


def _break(each: Break) -> dict[str, Any]:
    event = each.event
    reads = {"read_before": event.read_before, "read_now": event.read_now}
    return {"at": each.at, "agent": each.agent, "cause": event.cause, "detail": event.detail, **reads}


def _trip(each: Trip) -> dict[str, Any]:
    return {"at": each.at, "agent": each.agent, "failures": each.event.failures, "reason": each.event.reason}

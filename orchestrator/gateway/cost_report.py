"""Cost report of a session, from its ledger and events."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.events.layer_events import BreakerTripped, CacheBroke
from coterie.orchestrator.events.event_sources import open_sources
from coterie.orchestrator.events.session_reader import SessionReader
from coterie.orchestrator.gateway.cache_savings import CostAlternatives, cost_alternatives
from coterie.orchestrator.gateway.cost_totals import (
    TURN,
    CostRow,
    CostTotals,
    Grouping,
    group_costs,
    per_100_turns,
    sum_costs,
)
from coterie.orchestrator.gateway.ledger import LEDGER, DamagedEntry, read_ledger


@attrs.frozen(kw_only=True)
class CacheBreak:
    """The prompt cache gave an agent less than before, and nobody had announced it."""

    at: float
    agent: str
    event: CacheBroke


@attrs.frozen(kw_only=True)
class BreakerTrip:
    """Summaries of an agent's conversation have failed so often that no model is asked for them any more."""

    at: float
    agent: str
    event: BreakerTripped


@attrs.frozen(kw_only=True)
class CostReport:
    """What a session has cost so far, and why."""

    by: Grouping
    rows: tuple[CostRow, ...]
    total: CostTotals
    alternatives: CostAlternatives
    turns: int
    """Whole replies to calls of that purpose."""
    per_100_turns: dict[str, float]
    """Calls of each other purpose."""
    breaks: tuple[CacheBreak, ...]
    trips: tuple[BreakerTrip, ...]
    damaged: tuple[DamagedEntry, ...]
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


def build_cost_report(directory: Path, by: Grouping = "agent") -> CostReport:
    """Read the session in *directory*. Blocks on the disk; raises `OSError`, also if there is no ledger."""
    reading = read_ledger(directory / LEDGER)
    told = sorted(_read_cache_events(directory), key=lambda each: each.at)
    return CostReport(
        by=by,
        rows=tuple(group_costs(reading.lines, by)),
        total=sum_costs(reading.lines),
        alternatives=cost_alternatives(reading.lines),
        turns=sum(line.purpose == TURN and not line.is_estimated for line in reading.lines),
        per_100_turns=per_100_turns(reading.lines),
        breaks=tuple(each for each in told if isinstance(each, CacheBreak)),
        trips=tuple(each for each in told if isinstance(each, BreakerTrip)),
        damaged=reading.damaged,
    )


def _read_cache_events(directory: Path) -> Iterator[CacheBreak | BreakerTrip]:
    for path in SessionReader(directory).agent_directories():
        # The transcript, by far the longer of the two, says nothing of either.
        told, _ = open_sources(path, session=directory.name)
        for arrival in told.read(told.lines.size()):
            match arrival.event.event:
                case CacheBroke() as event:
                    yield CacheBreak(at=arrival.event.at, agent=arrival.event.agent, event=event)
                case BreakerTripped() as event:
                    yield BreakerTrip(at=arrival.event.at, agent=arrival.event.agent, event=event)
                case _:
                    pass


def row_mapping(row: CostRow, by: Grouping) -> dict[str, Any]:
    """A row as JSON has it."""
    place = {"parent": row.parent, "depth": row.depth, "subtree_cost_usd": format(row.subtree, "f")}
    return {"name": row.name, **(place if by == "agent" else {}), **spending_mapping(row.spending)}


def spending_mapping(spending: CostTotals) -> dict[str, Any]:
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


def _break(each: CacheBreak) -> dict[str, Any]:
    event = each.event
    reads = {"read_before": event.read_before, "read_now": event.read_now}
    return {"at": each.at, "agent": each.agent, "cause": event.cause, "detail": event.detail, **reads}


def _trip(each: BreakerTrip) -> dict[str, Any]:
    return {"at": each.at, "agent": each.agent, "failures": each.event.failures, "reason": each.event.reason}

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
    """Unexpected drop of an agent's cache reads."""

    at: float
    agent: str
    event: CacheBroke


@attrs.frozen(kw_only=True)
class BreakerTrip:
    """End of model-made summaries for an agent, after repeated failures."""

    at: float
    agent: str
    event: BreakerTripped


@attrs.frozen(kw_only=True)
class CostReport:
    """Costs of a session so far, with cache misses and their causes."""

    by: Grouping
    rows: tuple[CostRow, ...]
    total: CostTotals
    alternatives: CostAlternatives
    turns: int
    """Number of complete replies to calls of purpose `turn`."""
    per_100_turns: dict[str, float]
    """Number of calls of each other purpose per 100 turns."""
    breaks: tuple[CacheBreak, ...]
    trips: tuple[BreakerTrip, ...]
    damaged: tuple[DamagedEntry, ...]
    """Unreadable ledger entries, which the report does not count."""

    def to_mapping(self) -> dict[str, Any]:
        """Return the report as a JSON object; dollars are exact decimal strings."""
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
    """Build the report of the session in *directory*. Blocks; raises `OSError`, also if there is no ledger."""
    reading = read_ledger(directory / LEDGER)
    events = sorted(_read_cache_events(directory), key=lambda each: each.at)
    return CostReport(
        by=by,
        rows=tuple(group_costs(reading.lines, by)),
        total=sum_costs(reading.lines),
        alternatives=cost_alternatives(reading.lines),
        turns=sum(line.purpose == TURN and not line.is_estimated for line in reading.lines),
        per_100_turns=per_100_turns(reading.lines),
        breaks=tuple(each for each in events if isinstance(each, CacheBreak)),
        trips=tuple(each for each in events if isinstance(each, BreakerTrip)),
        damaged=reading.damaged,
    )


def _read_cache_events(directory: Path) -> Iterator[CacheBreak | BreakerTrip]:
    for path in SessionReader(directory).agent_directories():
        # The transcript holds neither of these events and is much longer, so it is not read.
        log, _ = open_sources(path, session=directory.name)
        for arrival in log.read(log.lines.size()):
            match arrival.event.event:
                case CacheBroke() as event:
                    yield CacheBreak(at=arrival.event.at, agent=arrival.event.agent, event=event)
                case BreakerTripped() as event:
                    yield BreakerTrip(at=arrival.event.at, agent=arrival.event.agent, event=event)
                case _:
                    pass


def row_mapping(row: CostRow, by: Grouping) -> dict[str, Any]:
    """Return a row as a JSON object."""
    place = {"parent": row.parent, "depth": row.depth, "subtree_cost_usd": format(row.subtree, "f")}
    return {"name": row.name, **(place if by == "agent" else {}), **spending_mapping(row.spending)}


def spending_mapping(spending: CostTotals) -> dict[str, Any]:
    """Return totals as a JSON object."""
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
